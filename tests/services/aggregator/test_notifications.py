"""Only changes of an experiment wake its waiters; new jobs wake the workers."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from modnorm.services.aggregator import notifications
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.aggregator.notifications import Announcer, Notifier
from verification.labs.waiting import HANG_SECONDS


async def test_a_change_since_the_read_ends_the_wait_at_once():
    notifier = Notifier()
    one, same, other = (notifier.next_change(name) for name in ("a", "a", "b"))
    notifier.notify("a")
    await asyncio.wait_for(asyncio.gather(one.wait(), same.wait()), HANG_SECONDS / 2)
    assert not other.is_set()
    assert not notifier.next_change("a").is_set()


@pytest.mark.parametrize("turns", range(4))
async def test_a_message_that_is_due_does_not_keep_the_aggregator_from_stopping(
    turns, monkeypatch
):
    sent = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        notifications, "announce_work", lambda _app: loop.call_soon_threadsafe(sent.set)
    )
    monkeypatch.setattr(notifications, "PAUSE_SECONDS", 0.0)
    announcer = Announcer(None, AggregatorMetrics(CollectorRegistry()))
    running = asyncio.create_task(announcer.run())
    await sent.wait()
    await asyncio.sleep(0.1)  # it waits for the next message
    announcer.announce()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=1.0)
    assert running.cancelled()


async def test_a_message_that_a_defect_kept_back_is_sent_by_the_next_run(monkeypatch):
    sent: list[None] = []

    def announce(_app):
        sent.append(None)
        if len(sent) == 1:
            raise ValueError("a defect")

    monkeypatch.setattr(notifications, "announce_work", announce)
    announcer = Announcer(None, AggregatorMetrics(CollectorRegistry()))
    with pytest.raises(ValueError, match="defect"):
        await announcer.run()
    running = asyncio.create_task(announcer.run())
    async with asyncio.timeout(notifications.CHECK_SECONDS / 2):
        while len(sent) < 2:  # noqa: ASYNC110 - sent in a thread
            await asyncio.sleep(0.01)
    running.cancel()
