"""Both clients behind one face, so that one suite tests them."""

import asyncio
import inspect
from collections.abc import AsyncIterable
from contextlib import ExitStack, closing

import pytest

from modnorm import AsyncClient, Client

_END = object()


class Awaited:
    """An `AsyncClient`, or what it returned, whose methods block in an event loop of their own."""

    def __init__(self, wrapped, runner):
        self.wrapped = wrapped
        self._runner = runner

    def __getattr__(self, name):
        member = getattr(self.wrapped, name)
        if not inspect.ismethod(member):
            return member
        return lambda *words, **options: self._settled(member(*words, **options))

    def __iter__(self):
        items = aiter(self.wrapped)
        while (item := self._wait(anext(items, _END))) is not _END:
            yield item

    def __next__(self):
        if (item := self._wait(anext(self.wrapped, _END))) is _END:
            raise StopIteration
        return item

    def _wait(self, awaitable):
        async def waited():
            return await awaitable

        return self._runner.run(waited())

    def _settled(self, result):
        if inspect.isawaitable(result):
            result = self._wait(result)
        is_more = isinstance(result, AsyncIterable) or type(result).__name__ == "AsyncRun"
        return Awaited(result, self._runner) if is_more else result


@pytest.fixture(params=["blocking", "async"])
def connect(request):
    """Open a client; the arguments are those of `Client`."""
    with ExitStack() as stack:

        def blocking(target, **options):
            return stack.enter_context(Client(target, **options))

        def awaited(target, **options):
            runner = stack.enter_context(asyncio.Runner())
            made = Awaited(AsyncClient(target, **options), runner)
            return stack.enter_context(closing(made))

        yield blocking if request.param == "blocking" else awaited
