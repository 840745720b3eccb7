"""StatusService: the dependencies of a service and their present state."""

import time
from collections.abc import Awaitable, Callable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import override

from modnorm import __version__
from modnorm.v1 import status_pb2, status_pb2_grpc

SERVICE = "modnorm.v1.StatusService"

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
            version=__version__,
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
