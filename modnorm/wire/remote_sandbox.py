"""Client of the sandbox service, with the interface of a local sandbox."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import grpc

from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.sandbox import Isolation, Program, ProgramOutcome
from modnorm.v1 import sandbox_pb2, sandbox_pb2_grpc
from modnorm.wire.channel import Credentials, channel_options, open_channel
from modnorm.wire.sandbox_conversions import (
    isolation_from_proto,
    outcome_from_proto,
    program_to_proto,
)
from modnorm.wire.status import from_neighbour

_MEASURE_SECONDS = 120.0
_SERVICE = sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"].full_name
_QUEUE_SECONDS = 120.0
"""How long a program may wait for its turn, on top of its own limit."""
# A program may run twice: it leaves nothing behind.
_CHANNEL_OPTIONS = channel_options([{"service": _SERVICE}], most_bytes=16 * 2**20)


class RemoteSandbox:
    """Sends programs to a sandbox service; threads may share it."""

    def __init__(self, target: str, *, credentials: Credentials | None = None) -> None:
        self._channel = open_channel(target, credentials or Credentials(), _CHANNEL_OPTIONS)
        self._stub = sandbox_pb2_grpc.SandboxServiceStub(self._channel)

    def execute(self, program: Program) -> ProgramOutcome:
        """Run a program and judge it.

        Raises:
            InvalidInputError: a test cannot be judged; nothing ran.
            UnavailableError: no service answers, it does not isolate, or the token that it is to
                be shown cannot be read; nothing counts.
            EngineError: the sandbox failed meanwhile. This is no verdict: try again.
        """
        timeout, request = program.limits.wall_seconds + _QUEUE_SECONDS, program_to_proto(program)
        with _errors():
            response = self._stub.Execute(request, timeout=timeout)
        return outcome_from_proto(response)

    def check_health(self) -> Isolation:
        """Measure the isolation of the service now.

        Raises:
            UnavailableError: no service answers, a guarantee does not hold, or the token cannot
                be read.
        """
        request = sandbox_pb2.GetIsolationRequest()
        with _errors():
            response = self._stub.GetIsolation(request, timeout=_MEASURE_SECONDS)
        isolation = isolation_from_proto(response)
        isolation.require()
        return isolation

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_neighbour(error, "sandbox") from error
    except InvalidInputError as error:
        # The token file cannot be read: the program and its experiment are not at fault.
        raise UnavailableError(error.message, field=error.field) from error


def sandbox_at(target: str, credentials: Credentials) -> RemoteSandbox | None:
    """Return the sandbox service at HOST:PORT, None for an empty text."""
    return RemoteSandbox(target, credentials=credentials) if target else None
