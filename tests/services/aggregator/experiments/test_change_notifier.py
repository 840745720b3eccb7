"""Waiters are woken by changes of their experiment only."""

import asyncio

from modnorm.services.aggregator.notifications import Notifier
from verification.labs.waiting import HANG_SECONDS


async def test_a_change_since_the_read_ends_the_wait_at_once():
    notifier = Notifier()
    one, same, other = (notifier.next_change(name) for name in ("a", "a", "b"))
    notifier.notify("a")
    await asyncio.wait_for(asyncio.gather(one.wait(), same.wait()), HANG_SECONDS / 2)
    assert not other.is_set()
    assert not notifier.next_change("a").is_set()
