"""StatusService: the dependencies of a service and their present state."""

import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.connection import Metadata
from modnorm.wire.status import from_rpc_error

SERVICE = "modnorm.v1.StatusService"
STATUS_SECONDS = 20.0
"""Deadline of a service's status; a sandbox measures its isolation meanwhile."""

Check = Callable[[], Awaitable[Sequence[status_pb2.Dependency]]]
"""Checks the dependencies of a service."""


class StatusServicer(status_pb2_grpc.StatusServiceServicer):
    def __init__(self, check: Check | None = None) -> None:
        self._check = check

    @override
    async def GetStatus(
        self, request: status_pb2.GetStatusRequest, context: object
    ) -> status_pb2.GetStatusResponse:
        """Check the dependencies and return the status."""
        return status_pb2.GetStatusResponse(
            version=version("modnorm"),
            time=now(),
            dependencies=await self._check() if self._check else (),
        )


def now() -> Timestamp:
    """Return the present time as a message."""
    return timestamp(time.time())


def timestamp(seconds: float) -> Timestamp:
    """Return a time in seconds since the epoch as a message."""
    message = Timestamp()
    message.FromMicroseconds(round(seconds * 1e6))
    return message


async def check_service(
    name: str, channel: grpc.aio.Channel, metadata: Metadata = ()
) -> status_pb2.Dependency:
    """Return the status of a service, which is usable if all its dependencies are."""
    stub = status_pb2_grpc.StatusServiceStub(channel)
    request = status_pb2.GetStatusRequest()
    try:
        status = await stub.GetStatus(request, timeout=STATUS_SECONDS, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return status_pb2.Dependency(
            name=name,
            detail=str(from_rpc_error(error)),
            remedy=f"start the {name}, or fix its address in the aggregator's settings; "
            "its log contains other errors",
        )
    unusable = [one for one in status.dependencies if not one.usable]
    return status_pb2.Dependency(
        name=name,
        usable=not unusable,
        detail="; ".join(f"{one.name}: {one.detail}" for one in unusable) or "answers",
        remedy="; ".join(one.remedy for one in unusable),
        version=status.version,
    )
