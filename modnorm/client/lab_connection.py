"""The common part of both clients: arguments, deadlines, errors, retries."""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller

import grpc
from tenacity import RetryCallState

from modnorm.arguments import require_seconds, require_type
from modnorm.client.calls import SERVICE, Call, ResultT
from modnorm.errors import InvalidInputError, RateLimitedError
from modnorm.wire.channel import Credentials, channel_options, closed_connection
from modnorm.wire.connection import ConnectionSettings
from modnorm.wire.status import from_rpc_error

# Every method may be repeated: creation carries a request id, the rest read or absorb.
CHANNEL_OPTIONS = channel_options([{"service": SERVICE}], most_bytes=64 * 2**20)
SERIALIZE = methodcaller("SerializeToString")


class LabConnection:
    """A connection to an aggregator. Methods raise the errors of `modnorm.errors`.

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
        self._target = _checked(target)
        self._timeout = timeout
        self.patience = patience
        self._credentials = shown
        self._is_closed = False
        self._open()

    def _open(self) -> None:
        """Open the channel, unless that needs an event loop."""

    def _seconds(self, call: Call[ResultT]) -> float:
        """Return the deadline of a call."""
        return max(self._timeout, call.least_seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_connection()

    @contextmanager
    def _faults(self, call: Call[ResultT]) -> Iterator[None]:
        """Raise this project's errors; whatever a closed connection broke off says so."""
        try:
            yield
        except grpc.RpcError as error:
            self._check_open()
            raise from_rpc_error(error, late=call.late) from error


def _checked(target: str) -> str:
    """Return a target; refuse what gRPC would try in vain until the deadline."""
    if isinstance(target, str):
        port = target.rpartition(":")[2]
        is_web = target.startswith(("http://", "https://"))
        if target and not is_web and (not port.isdecimal() or 0 < int(port) < 2**16):
            return target
    raise InvalidInputError(
        f"{target!r} is no address of a lab",
        field="server",
        remedy="give HOST:PORT, for example aggregator.example:50051",
    )


def limit_pause(state: RetryCallState) -> float:
    """Return the pause that a rate limit asked for."""
    error = state.outcome.exception() if state.outcome else None
    return error.wait if isinstance(error, RateLimitedError) else 0.0
