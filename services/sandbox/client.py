"""A sandbox behind the network, used like one of this process."""

from typing import Self

import grpc

from modnorm.client.status import from_rpc_error
from modnorm.sandbox import Isolation, Outcome, Program
from modnorm.v1 import sandbox_pb2, sandbox_pb2_grpc
from services.common.channels import CHANNEL_OPTIONS
from services.sandbox.codec import isolation_from_proto, outcome_from_proto, program_to_proto

_MEASURE_SECONDS = 120.0


class RemoteSandbox:
    """Sends programs to a sandbox service; threads may share it.

    Args:
        target: HOST:PORT.
        queue_seconds: How long a program may wait for its turn, on top of its own limit.
    """

    def __init__(self, target: str, *, queue_seconds: float = 120.0) -> None:
        self._channel = grpc.insecure_channel(target, options=list(CHANNEL_OPTIONS))
        self._stub = sandbox_pb2_grpc.SandboxServiceStub(self._channel)
        self._queue_seconds = queue_seconds

    def execute(self, program: Program) -> Outcome:
        """Run a program and judge it.

        Raises:
            InvalidInputError: a test cannot be judged; nothing ran.
            UnavailableError: no service answers, or it does not isolate; nothing counts.
            EngineError: the sandbox failed meanwhile. This is no verdict: try again.
        """
        timeout = program.limits.wall_seconds + self._queue_seconds
        try:
            response = self._stub.Execute(program_to_proto(program), timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        return outcome_from_proto(response)

    def check_health(self) -> Isolation:
        """Have the isolation measured now.

        Raises:
            UnavailableError: no service answers, or a guarantee does not hold.
        """
        request = sandbox_pb2.GetIsolationRequest()
        try:
            response = self._stub.GetIsolation(request, timeout=_MEASURE_SECONDS)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
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
