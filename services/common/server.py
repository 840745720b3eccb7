"""gRPC servers: health, reflection, error mapping, limits and a graceful stop."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

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


class _Health(Protocol):
    async def set(
        self, service: str, status: health_pb2.HealthCheckResponse.ServingStatus
    ) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class RunningServer:
    """A started server."""

    def __init__(
        self, server: grpc.aio.Server, port: int, health_servicer: _Health, services: Sequence[str]
    ) -> None:
        self.port = port
        self._server = server
        self._health = health_servicer
        self._services = ("", *services)

    async def set_serving(self, *, serving: bool) -> None:
        """Set the health status of the services."""
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if serving else statuses.NOT_SERVING
        for service in self._services:
            await self._health.set(service, status)

    async def stop(self, grace: float) -> None:
        """Report NOT_SERVING, refuse new calls, wait `grace` seconds for present ones, close."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)


async def start_server(
    address: str,
    register: Register,
    registry: CollectorRegistry | None = None,
    settings: ServiceSettings | None = None,
) -> RunningServer:
    """Start a server in the running event loop."""
    settings = settings or ServiceSettings()
    measured = CallMetrics(registry or CollectorRegistry())
    interceptor = CallInterceptor(TokenGate(settings), measured)
    server = grpc.aio.server(interceptors=(interceptor,), options=_OPTIONS)
    services = tuple(register(server))
    health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]  # not in its stubs
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection(
        (*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    try:
        port = open_port(server, address, settings)
    except RuntimeError as error:
        raise UnavailableError(
            f"cannot listen on {address}: {error}",
            field="MODNORM_BIND_ADDRESS",
            remedy="set a free HOST:PORT",
        ) from error
    running = RunningServer(server, port, health_servicer, services)
    # The empty service reports that the process answers; supervisors restart it otherwise.
    await health_servicer.set(health.SERVICE_NAME, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    await running.set_serving(serving=True)
    return running


class GrpcService:
    """A service of one process: its servicers, and what a subclass runs beside them."""

    def __init__(
        self,
        settings: ServiceSettings,
        register: Register = lambda _: (),
        registry: CollectorRegistry | None = None,
        *,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._address = settings.bind_address
        self._grace = settings.stop_grace
        self._start_server = partial(start_server, self._address, register, registry, settings)
        self._close = close
        self._server: RunningServer | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        if self._server is None:
            raise UnavailableError("the service is not started")
        return self._server.port

    async def start(self) -> None:
        """Start the service; return when it is ready."""
        self._server = await self._start_server()

    async def stop(self) -> None:
        """Refuse new work; return once the present work is finished or released."""
        if self._server is not None:
            await self._server.stop(self._grace)
        if self._close is not None:
            await asyncio.to_thread(self._close)

    def stop_now(self) -> None:
        """End the grace period of the present or next stop: release the work now."""

    async def set_serving(self, *, serving: bool) -> None:
        """Set the health status, once started."""
        if self._server is not None:
            await self._server.set_serving(serving=serving)
