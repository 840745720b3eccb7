"""A worker in a thread, and a server that answers its health checks."""

import asyncio
import logging
import signal
import threading

from prometheus_client import CollectorRegistry

from modnorm.errors import UnavailableError
from modnorm.services.common.server import RunningServer, no_services, port_of, start_server
from modnorm.services.common.settings import ServiceSettings
from modnorm.services.common.worker.queue_worker import QueueWorker

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the worker."""

logger = logging.getLogger(__name__)


class WorkerService:
    """A service of one worker, for `run_service`; it serves while its worker takes jobs."""

    def __init__(
        self, settings: ServiceSettings, worker: QueueWorker, registry: CollectorRegistry
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._queue_worker = worker
        self._thread = threading.Thread(target=worker.run, name="worker", daemon=True)
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
        """Finish or release the current job, then close.

        Raises:
            UnavailableError: the worker had ended without a request and must be restarted.
        """
        if self._health:
            self._health.cancel()
        if self._server:
            await self._server.set_serving(serving=False)
            await asyncio.to_thread(self._queue_worker.stop)
            await self._server.stop(self._settings.stop_grace)
        if self._ended_unasked:
            raise UnavailableError("the worker ended without a request to stop")

    def stop_now(self) -> None:
        """Release the current job now."""
        self._queue_worker.stop_now()

    async def _check(self) -> None:
        """Check the worker, besides whether it serves; called at every interval."""

    async def _report_health(self, server: RunningServer) -> None:
        while self._thread.is_alive():
            await server.set_serving(serving=self._queue_worker.serving)
            await self._check()
            await asyncio.sleep(CHECK_INTERVAL)
        logger.critical("the worker ended without a request to stop")
        self._ended_unasked = True
        signal.raise_signal(signal.SIGTERM)
