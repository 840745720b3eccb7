"""Waiters are woken by changes of their experiment only."""

import asyncio

import pytest

from modnorm.services.aggregator.notifications import Notifier
from verification.labs.waiting import HANG_SECONDS


async def test_a_change_wakes_only_the_waiters_of_its_experiment():
    notifier = Notifier()
    mine = [asyncio.create_task(notifier.wait("a", 0)) for _ in range(2)]
    other = asyncio.create_task(notifier.wait("b", 0))
    await asyncio.sleep(0)
    notifier.notify("a")
    await asyncio.wait_for(asyncio.gather(*mine), HANG_SECONDS / 2)
    assert not other.done()
    assert notifier.seen() == 1
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert not notifier._waiting
    notifier.notify("b")


async def test_a_change_since_the_read_ends_the_wait_at_once():
    notifier = Notifier()
    notifier.notify("a")
    notifier.notify("b")
    seen = notifier.seen()
    other = asyncio.create_task(notifier.wait("b", seen))
    notifier.notify("a")
    await asyncio.wait_for(notifier.wait("a", seen), HANG_SECONDS / 2)
    assert not other.done()
    other.cancel()
