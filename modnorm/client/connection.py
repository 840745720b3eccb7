"""A blocking connection to a lab."""

from collections.abc import Callable, Iterator
from typing import Self

from tenacity import Retrying, retry_if_exception_type, stop_before_delay

from modnorm.client.calls import Call, ItemT, Page, ResultT
from modnorm.client.lab_connection import CHANNEL_OPTIONS, SERIALIZE, LabConnection, limit_pause
from modnorm.errors import RateLimitedError
from modnorm.wire.channel import open_channel


class Connection(LabConnection):
    """Makes the calls of `modnorm.client.calls`; threads may share it."""

    def _open(self) -> None:
        self._channel = open_channel(self._target, self._credentials, CHANNEL_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise PreconditionError."""
        self._is_closed = True
        self._channel.close()

    def call(self, call: Call[ResultT]) -> ResultT:
        """Make a call; repeat it after the pause of a rate limit, if the deadline allows."""
        method = self._channel.unary_unary(call.path, SERIALIZE, call.read)

        def attempt() -> ResultT:
            with self._faults(call):
                result: ResultT = method(call.request, timeout=self._seconds(call))
                return result

        return _admitted(attempt, self._seconds(call))

    def stream(self, call: Call[ResultT], seconds: float | None = None) -> Iterator[ResultT]:
        """Yield the responses of a call; they end after `seconds` at the latest."""
        method = self._channel.unary_stream(call.path, SERIALIZE, call.read)
        responses = method(call.request, timeout=seconds or self._seconds(call))
        try:
            with self._faults(call):
                yield from responses
        finally:
            responses.cancel()  # type: ignore[no-untyped-call]  # only in its stubs

    def read(self, call: Call[bytes]) -> bytes:
        """Return the chunks of a stream together."""

        def attempt() -> bytes:
            chunks = self.stream(call)
            return b"".join(chunks)

        return _admitted(attempt, self._seconds(call))

    def pages(self, page: Callable[[str], Call[Page[ItemT]]]) -> Iterator[ItemT]:
        """Yield the items of all pages, one call at a time."""
        token = ""
        while True:
            items, token = self.call(page(token))
            yield from items
            if not token:
                return


def _admitted(attempt: Callable[[], ResultT], seconds: float) -> ResultT:
    """Make attempts until no rate limit refuses one, or its pause would exceed the deadline."""
    retrying = Retrying(
        retry=retry_if_exception_type(RateLimitedError),
        wait=limit_pause,
        stop=stop_before_delay(seconds),
        reraise=True,
    )
    return retrying(attempt)
