"""StatusService: what a service needs, and whether it has it now."""

import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.status import from_rpc_error

SERVICE = "modnorm.v1.StatusService"
STATUS_SECONDS = 20.0
"""How long a neighbour may take to say how it is; a sandbox measures its isolation meanwhile."""

Look = Callable[[], Awaitable[Sequence[status_pb2.Dependency]]]
"""Looks at what a service needs."""
Metadata = Sequence[tuple[str, str | bytes]]


async def needs_nothing() -> Sequence[status_pb2.Dependency]:
    """Look at what a service needs that needs nothing."""
    return ()


class StatusServicer(status_pb2_grpc.StatusServiceServicer):
    """Says how one service is.

    Args:
        look: Looks at what it needs.
    """

    def __init__(self, look: Look = needs_nothing) -> None:
        self._look = look

    @override
    async def GetStatus(
        self,
        request: status_pb2.GetStatusRequest,
        context: grpc.aio.ServicerContext[
            status_pb2.GetStatusRequest, status_pb2.GetStatusResponse
        ],
    ) -> status_pb2.GetStatusResponse:
        """Look now."""
        return status_pb2.GetStatusResponse(
            version=version("modnorm"), time=now(), dependencies=await self._look()
        )


def now() -> Timestamp:
    """Return the present time."""
    return timestamp(time.time())


def timestamp(seconds: float) -> Timestamp:
    """Return a time given in seconds since the epoch."""
    found = Timestamp()
    found.FromNanoseconds(int(seconds * 1e9))
    return found


async def look_at_service(
    name: str, channel: grpc.aio.Channel, metadata: Metadata = ()
) -> status_pb2.Dependency:
    """Ask a neighbour how it is; it is as usable as all that it needs.

    Args:
        name: What it is called.
        channel: A channel to it.
        metadata: What the call carries.
    """
    stub = status_pb2_grpc.StatusServiceStub(channel)
    request = status_pb2.GetStatusRequest()
    try:
        found = await stub.GetStatus(request, timeout=STATUS_SECONDS, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return status_pb2.Dependency(
            name=name,
            detail=str(from_rpc_error(error)),
            remedy=f"start the {name}, or mend its address in the aggregator's settings; "
            "its log says what else is wrong",
        )
    bad = [one for one in found.dependencies if not one.usable]
    return status_pb2.Dependency(
        name=name,
        usable=not bad,
        detail="; ".join(f"{one.name}: {one.detail}" for one in bad) or "answers",
        remedy="; ".join(one.remedy for one in bad),
        version=found.version,
    )
