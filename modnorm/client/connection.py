"""A connection to a lab: deadlines, errors, retries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from typing import Self

import grpc

from modnorm.arguments import require_seconds, require_type
from modnorm.client.calls import SERVICE, Call, ItemT, Page, ResultT
from modnorm.errors import InvalidInputError
from modnorm.wire.channel import channel_options, closed_connection, open_channel
from modnorm.wire.connection import ConnectionSettings, Credentials, is_target
from modnorm.wire.status import from_rpc_error

# Every method may be repeated: creation carries a request id, the rest read or absorb.
_CHANNEL_OPTIONS = channel_options([{"service": SERVICE}], most_bytes=64 * 2**20)
_SERIALIZE = methodcaller("SerializeToString")


class Connection:
    """A connection to an aggregator; threads may share it. Methods raise `modnorm.errors`.

    Args:
        target: `HOST:PORT` of the aggregator.
        timeout: Seconds that one call may take, retries included.
        patience: Seconds that `watch` retries a server that went away; infinity is no limit.
        credentials: Token and certificates; those of the environment when absent.

    Raises:
        InvalidInputError: the target is no address, or an argument has the wrong type.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        patience: float = 120.0,
        credentials: Credentials | None = None,
    ) -> None:
        require_seconds(timeout, "timeout")
        require_seconds(patience, "patience", endless=True)
        shown = ConnectionSettings().credentials if credentials is None else credentials
        require_type(shown, Credentials, "credentials")
        shown.require_authorities()
        _require_address(target)
        self._timeout = timeout
        self.patience = patience
        self._is_closed = False
        self._channel = open_channel(target, shown, _CHANNEL_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise PreconditionError."""
        self._is_closed = True
        self._channel.close()

    def call(self, call: Call[ResultT]) -> ResultT:
        """Make a call; the channel repeats it while the server is unavailable."""
        method = self._channel.unary_unary(call.path, _SERIALIZE, call.read)
        with self._faults(call):
            result: ResultT = method(call.request, timeout=self._seconds(call))
            return result

    def stream(self, call: Call[ResultT], seconds: float | None = None) -> Iterator[ResultT]:
        """Yield the responses of a call; they end after `seconds` at the latest."""
        method = self._channel.unary_stream(call.path, _SERIALIZE, call.read)
        responses = method(call.request, timeout=seconds or self._seconds(call))
        try:
            with self._faults(call):
                yield from responses
        finally:
            responses.cancel()  # type: ignore[no-untyped-call]  # only in its stubs

    def pages(self, page: Callable[[str], Call[Page[ItemT]]]) -> Iterator[ItemT]:
        """Yield the items of all pages, one call at a time."""
        token = ""
        while True:
            items, token = self.call(page(token))
            yield from items
            if not token:
                return

    def _seconds(self, call: Call[ResultT]) -> float:
        """Return the deadline of a call."""
        return max(self._timeout, call.least_seconds)

    @contextmanager
    def _faults(self, call: Call[ResultT]) -> Iterator[None]:
        """Raise this project's errors; whatever a closed connection broke off says so."""
        try:
            yield
        except grpc.RpcError as error:
            if self._is_closed:
                raise closed_connection() from error
            raise from_rpc_error(error, late=call.late) from error


def _require_address(target: str) -> None:
    """Refuse a target that gRPC would try in vain until the deadline."""
    if isinstance(target, str) and is_target(target):
        return
    raise InvalidInputError(
        f"{target!r} is no address of a lab",
        field="server",
        remedy="give HOST:PORT, for example aggregator.example:50051",
    )
