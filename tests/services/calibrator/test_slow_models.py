"""Slow models delay no other call."""

import asyncio
import os
import threading
from contextlib import asynccontextmanager

import pytest

from modnorm.errors import UnavailableError
from modnorm.services.calibrator import servicer
from modnorm.services.common.model_resolution import resolve_model
from modnorm.v1 import calibration_pb2 as pb
from modnorm.v1 import common_pb2
from verification.labs.waiting import HANG_SECONDS

FEW = 6
MANY = (os.cpu_count() or 1) + 8
"""More than asyncio's default threads on machines with fewer than 28 cores."""
SLOW = common_pb2.ModelRef(name="slow")


class Downloads:
    """A model whose download blocks until a signal and then fails."""

    loop: asyncio.AbstractEventLoop

    def __init__(self):
        self._resolve = resolve_model
        self.begun = asyncio.Semaphore(0)
        self.go_on = threading.Event()

    def resolve(self, model, *args, **named):
        if model != SLOW:
            return self._resolve(model, *args, **named)
        self.loop.call_soon_threadsafe(self.begun.release)
        self.go_on.wait(HANG_SECONDS)
        raise UnavailableError("it did not come")


@pytest.fixture
def downloads(monkeypatch):
    made = Downloads()
    monkeypatch.setattr(servicer, "resolve_model", made.resolve)
    yield made
    made.go_on.set()


@asynccontextmanager
async def slow_calls(stub, downloads, requests):
    """Make calls that need the blocked model; continue when six wait for it."""
    downloads.loop = asyncio.get_running_loop()
    calls = [stub.Calibrate(request, timeout=HANG_SECONDS) for request in requests]
    try:
        async with asyncio.timeout(HANG_SECONDS / 2):
            for _ in range(FEW):
                await downloads.begun.acquire()
        yield
        assert not any(call.done() for call in calls)
    finally:
        downloads.go_on.set()
        for call in calls:
            call.cancel()


async def profile_of(call):
    *_, last = [response async for response in call]
    return last.profile


async def test_slow_models_keep_no_stored_profile_waiting(serve, settings, downloads, request_for):
    slow = request_for(model=SLOW)
    async with serve(settings) as stub:
        made = await profile_of(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
        async with slow_calls(stub, downloads, [slow] * MANY):
            asked = pb.GetProfileRequest(digest=made.digest)
            assert (await stub.GetProfile(asked, timeout=HANG_SECONDS / 2)).profile == made
