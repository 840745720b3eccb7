"""The trainer as a process: `python -m services.trainer.server`."""

import asyncio
import logging
import signal
import threading

from prometheus_client import CollectorRegistry

from modnorm.errors import UnavailableError
from modnorm.training.job import require_packages
from services.common.server import RunningServer, no_services, port_of, start_server
from services.common.service_process import read_settings, run_service
from services.common.settings import TrainerSettings
from services.trainer.worker import Worker

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the worker."""

logger = logging.getLogger(__name__)


class TrainerService:
    """A worker in a thread, and a server that answers its health checks.

    Raises:
        PreconditionError: the extra `modnorm[train]` is not installed.
    """

    def __init__(
        self, settings: TrainerSettings, registry: CollectorRegistry | None = None
    ) -> None:
        require_packages()
        self._settings = settings
        self._registry = registry or CollectorRegistry()
        self._worker = Worker(settings, registry=self._registry)
        self._thread = threading.Thread(target=self._worker.run, name="worker", daemon=True)
        self._server: RunningServer | None = None
        self._health: asyncio.Task[None] | None = None
        self._ended_unasked = False

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return port_of(self._server)

    async def start(self) -> None:
        """Start the server and the worker."""
        self._server = await start_server(
            self._settings.bind_address, no_services, self._registry, self._settings
        )
        await self._server.set_serving(serving=False)
        self._thread.start()
        self._health = asyncio.create_task(self._report_health(self._server))

    async def stop(self) -> None:
        """Release the current job, then close.

        Raises:
            UnavailableError: the worker had ended without a request and must be restarted.
        """
        if self._health:
            self._health.cancel()
        if self._server:
            await self._server.set_serving(serving=False)
            await asyncio.to_thread(self._worker.stop)
            await self._server.stop(self._settings.stop_grace)
        if self._ended_unasked:
            raise UnavailableError("the worker ended without a request to stop")

    def stop_now(self) -> None:
        """End the grace period now."""
        self._worker.stop_now()

    async def _report_health(self, server: RunningServer) -> None:
        while self._thread.is_alive():
            await server.set_serving(serving=self._worker.serving)
            await asyncio.sleep(CHECK_INTERVAL)
        logger.critical("the worker ended without a request to stop")
        self._ended_unasked = True
        signal.raise_signal(signal.SIGTERM)


def main() -> None:
    """Run the trainer until a signal."""
    settings = read_settings(TrainerSettings)
    run_service(settings, lambda registry: TrainerService(settings, registry))


if __name__ == "__main__":
    main()
