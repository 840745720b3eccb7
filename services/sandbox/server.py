"""The sandbox service as a process: `python -m modnorm.services.sandbox.server`."""

import logging
from collections.abc import Sequence

import grpc.aio
from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.sandbox import Sandbox
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import SandboxSettings
from modnorm.services.common.status_servicer import SERVICE as STATUS
from modnorm.services.common.status_servicer import StatusServicer
from modnorm.services.sandbox.servicer import SERVICE, SandboxMetrics, SandboxServicer
from modnorm.v1 import sandbox_pb2_grpc, status_pb2, status_pb2_grpc

logger = logging.getLogger(__name__)


class SandboxServer(GrpcService):
    """The sandbox and its server: measured at the start, serving only if it isolates.

    If a guarantee is broken, it refuses every program and its health is NOT_SERVING. GetIsolation
    still answers, so that an operator can read the reason.
    """

    def __init__(
        self, settings: SandboxSettings, registry: CollectorRegistry | None = None
    ) -> None:
        registry = registry or CollectorRegistry()
        metrics = SandboxMetrics(registry)
        self._servicer = SandboxServicer(Sandbox(), settings.concurrency, metrics)
        super().__init__(settings, self._register, registry, close=self._servicer.close)

    def _register(self, server: grpc.aio.Server) -> Sequence[str]:
        sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(self._servicer, server)
        status = StatusServicer(self._dependencies)
        status_pb2_grpc.add_StatusServiceServicer_to_server(status, server)
        return SERVICE, STATUS

    async def _dependencies(self) -> Sequence[status_pb2.Dependency]:
        """Measure the isolation for the status page."""
        isolation = await self._servicer.measure()
        broken = ", ".join(f"{name} ({seen})" for name, seen in isolation.broken.items())
        return [
            status_pb2.Dependency(
                name="isolation",
                usable=isolation.healthy,
                detail=f"broken: {broken}" if broken else "all guarantees hold",
                remedy="allow the mechanisms that docs/sandbox.md lists" if broken else "",
            )
        ]

    @override
    async def start(self) -> None:
        """Measure the isolation, then listen."""
        isolation = await self._servicer.measure()
        logger.info(
            "isolation",
            extra={
                "healthy": isolation.healthy,
                "mechanisms": list(isolation.mechanisms),
                "refusals": dict(isolation.refusals),
                "broken": dict(isolation.broken),
                "landlock_abi": isolation.landlock_abi,
            },
        )
        await super().start()
        await self.set_serving(serving=isolation.healthy)


def main() -> None:
    settings = read_settings(SandboxSettings)
    run_service(settings, lambda registry: SandboxServer(settings, registry))


if __name__ == "__main__":
    main()
