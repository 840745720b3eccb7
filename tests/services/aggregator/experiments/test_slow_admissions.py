"""Specs with slow data do not delay other calls."""

import asyncio
import os
import threading
from contextlib import asynccontextmanager

import pytest

from modnorm import spec_checks
from modnorm.tasks.row_loading import load_data
from modnorm.v1 import experiment_pb2
from verification.labs.waiting import HANG_SECONDS

MANY = (os.cpu_count() or 1) + 8
"""More than asyncio's default threads on machines with fewer than 28 cores."""
AT_A_TIME = min(8, (os.cpu_count() or 1) + 4)
"""Downloads for which the aggregator and asyncio both have threads."""
SLOW = {"source": "bundled:word-problems-selection", "limit": 5, "offset": 1}
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED


class Downloads:
    """Data that arrives on request."""

    loop: asyncio.AbstractEventLoop

    def __init__(self):
        self._load = load_data
        self.begun = asyncio.Semaphore(0)
        self.go_on = threading.Event()

    def load(self, task, named, **settings):
        if named.offset:
            self.loop.call_soon_threadsafe(self.begun.release)
            self.go_on.wait(HANG_SECONDS)
        return self._load(task, named, **settings)


@pytest.fixture
def downloads(monkeypatch):
    made = Downloads()
    monkeypatch.setattr(spec_checks, "load_data", made.load)
    yield made
    made.go_on.set()


@asynccontextmanager
async def many(lab, downloads, message):
    """Submit more experiments than threads; continue when some wait for their data."""
    downloads.loop = asyncio.get_running_loop()
    calls = [asyncio.create_task(lab.create(message, f"slow {one}")) for one in range(MANY)]
    try:
        async with asyncio.timeout(HANG_SECONDS):
            for _ in range(AT_A_TIME):
                await downloads.begun.acquire()
        yield calls
    finally:
        downloads.go_on.set()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


@pytest.mark.parametrize("gone", [False, True], ids=["they wait", "they have gone"])
async def test_slow_submissions_delay_no_other_call(start_lab, spec, downloads, gone):
    async with start_lab(lease_seconds=0.5) as lab:
        created = await lab.create(spec(failures__max_attempts=100))
        worker = lab.worker()
        lost = await worker.claim_next()
        async with many(lab, downloads, spec(task__selection=SLOW)) as calls:
            if gone:
                for call in calls:
                    call.cancel()
            async with asyncio.timeout(HANG_SECONDS / 2):
                await worker.rows(lost.rows_digest)
                while (await worker.claim_next()).lease.job_id != lost.lease.job_id:
                    pass  # until its lost lease is ended
                assert (await lab.cancel(created.id)).state == CANCELLED
            assert not downloads.go_on.is_set()
