"""gRPC servers: health, reflection, error mapping, limits and a graceful stop."""

import asyncio
import os
from collections.abc import Callable, Sequence

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from modnorm.errors import UnavailableError
from modnorm.services.common.access import TokenGate, open_port
from modnorm.services.common.call_interceptor import CallInterceptor
from modnorm.services.common.channels import FLOW, MESSAGE_BYTES
from modnorm.services.common.metrics import CallMetrics
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.channel import KEEPALIVE_SECONDS

Register = Callable[[grpc.aio.Server], Sequence[str]]
"""Adds servicers to a server and returns the full names of their services."""

_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.so_reuseport", 0),
    # No compression: messages would be decompressed before the check of size and token.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    *FLOW,
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 2 * KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 1000 // 2),
)


class GrpcService:
    """A server with its servicers, health checks and reflection; subclasses run work beside it."""

    def __init__(
        self,
        settings: ServiceSettings,
        register: Register = lambda _: (),
        registry: CollectorRegistry | None = None,
        *,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.port = 0
        """The port that it listens on, once started."""
        self._service_settings = settings
        self._add_servicers = register
        self._calls = CallMetrics(registry or CollectorRegistry())
        self._close = close
        self._server: grpc.aio.Server | None = None
        self._health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]  # not in its stubs
        self._services: Sequence[str] = ()

    async def start(self) -> None:
        """Start the service in the running event loop; return when it is ready."""
        address = self._service_settings.bind_address
        interceptor = CallInterceptor(TokenGate(self._service_settings), self._calls)
        server = grpc.aio.server(interceptors=(interceptor,), options=_OPTIONS)
        self._services = tuple(self._add_servicers(server))
        health_pb2_grpc.add_HealthServicer_to_server(self._health_servicer, server)
        reflection.enable_server_reflection(
            (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            self.port = open_port(server, address, self._service_settings)
        except RuntimeError as error:
            raise UnavailableError(
                f"cannot listen on {address}: {error}",
                field="MODNORM_BIND_ADDRESS",
                remedy="set a free HOST:PORT",
            ) from error
        # The health service reports that the process answers; supervisors restart it otherwise.
        await self._health_servicer.set(
            health.SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING
        )
        await server.start()
        self._server = server
        await self.set_serving(serving=True)

    async def stop(self) -> None:
        """Report NOT_SERVING, refuse new calls, give present ones the grace period, and close."""
        if self._server is not None:
            await self._health_servicer.enter_graceful_shutdown()
            await self._server.stop(self._service_settings.stop_grace)
        if self._close is not None:
            await asyncio.to_thread(self._close)

    def stop_now(self) -> None:
        """End the process. A thread cannot stop while its database does not answer.

        Subclasses that hold leases release them instead.
        """
        os._exit(1)

    async def set_serving(self, *, serving: bool) -> None:
        """Set the health status of the started services, and of the whole server."""
        if self._server is not None:
            statuses = health_pb2.HealthCheckResponse
            for service in ("", *self._services):
                status = statuses.SERVING if serving else statuses.NOT_SERVING
                await self._health_servicer.set(service, status)
