"""Callers that go in the midst of a call."""

import asyncio
import threading

import pytest

from verification.labs.waiting import HANG_SECONDS


class Gone:
    """A caller that goes while what it asked for is stored.

    Args:
        store: Object and name of what stores in a thread: it is held until the caller is gone.
        begin: Object and name of what begins that, and returns a future.
    """

    def __init__(self, store, begin):
        self._store, self._begin = getattr(*store), getattr(*begin)
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._gone, self.calls = asyncio.Event(), asyncio.Semaphore(0)
        setattr(store[0], store[1], self._held)
        setattr(begin[0], begin[1], self._watched)

    def _held(self, *args):
        self._begun.set()
        self._go_on.wait(HANG_SECONDS)
        return self._store(*args)

    def _watched(self, *args):
        answer = self._begin(*args)
        self.calls.release()
        answer.add_done_callback(lambda one: self._gone.set() if one.cancelled() else None)
        return answer

    async def goes(self, call, settle):
        """Break off a call in the midst, and wait until it is stored all the same."""
        await self.begins()
        call.cancel()
        await self.is_cut_off(settle())

    async def begins(self):
        """Wait until the call is in the midst of being stored."""
        assert await asyncio.to_thread(self._begun.wait, HANG_SECONDS)

    async def is_cut_off(self, settled):
        """Let a call be stored once it is cut off, and wait until all is settled."""
        settling = asyncio.ensure_future(settled)
        async with asyncio.timeout(HANG_SECONDS):
            await self._gone.wait()
            assert not settling.done()
            self._go_on.set()
            await settling


@pytest.fixture
def make_gone():
    """Have the next call of a kind be one whose caller goes; see `Gone`."""
    return Gone
