"""Log lines as JSON objects, and callers that disconnect while their call is stored."""

import asyncio
import io
import json
import logging
import threading

import pytest

from modnorm.services.common.logging import json_handler
from modnorm.services.evaluator.worker import Worker
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture
def logged():
    """Return the log lines of this process so far as JSON objects."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, level = json_handler(stream), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: list(map(json.loads, stream.getvalue().splitlines()))
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def idle_workers(monkeypatch):
    """Let the workers of embedded labs claim no jobs."""
    monkeypatch.setenv("MODNORM_DEVICES", "")
    monkeypatch.setattr(Worker, "run", lambda worker: worker._shutdown.requested.wait())


class Gone:
    """A caller that disconnects while its call is stored."""

    def __init__(self, tasks, store):
        self._run, self._store = tasks.run, getattr(*store)
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._gone, self.calls = asyncio.Event(), asyncio.Semaphore(0)
        setattr(store[0], store[1], self._held)
        tasks.run = self._watched

    def _held(self, *args, **named):
        self._begun.set()
        self._go_on.wait(HANG_SECONDS)
        return self._store(*args, **named)

    async def _watched(self, *args):
        self.calls.release()
        try:
            return await self._run(*args)
        except asyncio.CancelledError:
            self._gone.set()
            raise

    async def goes(self, call, settle):
        """Cancel a call during its write, and wait until it is stored."""
        await self.begins()
        call.cancel()
        await self.is_cut_off(settle())

    async def begins(self):
        """Wait until the call is being stored."""
        assert await asyncio.to_thread(self._begun.wait, HANG_SECONDS)

    async def is_cut_off(self, settled):
        """Let the write of a cancelled call finish, and wait for its end."""
        settling = asyncio.ensure_future(settled)
        async with asyncio.timeout(HANG_SECONDS):
            await self._gone.wait()
            assert not settling.done()
            self._go_on.set()
            await settling


@pytest.fixture
def make_gone():
    """Disconnect the caller of the next call of a kind; see `Gone`."""
    return Gone
