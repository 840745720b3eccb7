"""The evaluator as a process: `python -m modnorm.services.evaluator.server`."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time

from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.errors import UnavailableError
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.supervisor import MAKES_ROOM, STOP_SECONDS
from modnorm.services.evaluator.worker import Worker

ABANDON_SECONDS = 10.0
"""Deadline for reporting to the aggregator that the engine or a judge hangs."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks of the worker."""
EXIT_SECONDS = 10.0
"""Seconds that Python has to exit after the worker stopped."""
HANGS = 70
"""Exit code of a process that hangs, as its engine or its judge does."""

logger = logging.getLogger(__name__)


class EvaluatorService(GrpcService):
    """A worker in a thread, and a server that answers health checks."""

    def __init__(
        self, settings: EvaluatorSettings, registry: CollectorRegistry | None = None
    ) -> None:
        registry = registry or CollectorRegistry()
        super().__init__(settings, registry=registry)
        self._worker = Worker(settings, registry=registry)
        self._thread = threading.Thread(target=self._worker.run, name="worker", daemon=True)
        self._health: asyncio.Task[None] | None = None
        self._ended_unasked = False

    @override
    async def start(self) -> None:
        await super().start()
        await self.set_serving(serving=False)
        self._thread.start()
        self._health = asyncio.create_task(self._report_health())

    @override
    async def stop(self) -> None:
        """Finish or release the current job, then close."""
        if self._health:
            self._health.cancel()
        if self._server:
            await self.set_serving(serving=False)
            await asyncio.to_thread(self._worker.stop)
            await super().stop()
        if self._ended_unasked and self._worker.makes_room:
            raise SystemExit(MAKES_ROOM)
        if self._ended_unasked:
            raise UnavailableError("the worker ended without a request to stop")

    @override
    def stop_now(self) -> None:
        self._worker.stop_now()

    async def _report_health(self) -> None:
        while self._thread.is_alive():
            await self.set_serving(serving=self._worker.serving)
            if self._worker.hangs:
                await self._end_process()
            await asyncio.sleep(CHECK_INTERVAL)
        logger.critical("the worker ended without a request to stop")
        self._ended_unasked = True
        signal.raise_signal(signal.SIGTERM)

    async def _end_process(self) -> None:
        """End this process: a thread that hangs, in a kernel or a judge, cannot stop."""
        logger.critical("the engine or a judge hangs, this process ends")
        try:
            await asyncio.wait_for(asyncio.to_thread(self._worker.abandon), ABANDON_SECONDS)
        except Exception:
            logger.exception("its jobs are not reported, and their leases expire")
        os._exit(HANGS)


def end_with_supervisor() -> None:
    """Stop when standard input ends: a new supervisor will start a worker on the same GPU.

    A worker that does not stop, for example in a judge that never returns, is killed.
    """
    # Python aborts at exit if this thread holds the lock of `sys.stdin`.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    logger.error("the supervisor is gone")
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(CHECK_INTERVAL)
    end_after(STOP_SECONDS)


def end_after(seconds: float) -> None:
    """Kill this process unless it ends by itself. Python waits for a judge that never returns."""
    time.sleep(seconds)
    logger.critical("the worker did not stop in time and is killed")
    if os.getpgrp() == os.getpid():  # the ranks of its engine would keep the GPU's memory
        os.killpg(0, signal.SIGKILL)
    os._exit(HANGS)


def main() -> None:
    """Run the evaluator until a signal."""
    settings = read_settings(EvaluatorSettings)
    if settings.supervised:
        threading.Thread(target=end_with_supervisor, name="supervisor", daemon=True).start()
    try:
        run_service(settings, lambda registry: EvaluatorService(settings, registry))
    finally:
        threading.Thread(target=end_after, args=(EXIT_SECONDS,), daemon=True).start()


if __name__ == "__main__":
    main()
