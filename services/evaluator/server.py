"""The evaluator as a process: `python -m modnorm.services.evaluator.server`."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress

from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.engines import load_engine
from modnorm.errors import UnavailableError
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.worker.worker_service import CHECK_INTERVAL, WorkerService
from modnorm.services.evaluator.celery_worker import Worker
from modnorm.services.evaluator.model_cache import LoadEngine
from modnorm.services.evaluator.worker_process import MAKES_ROOM

ABANDON_SECONDS = 10.0
"""Deadline for reporting to the aggregator that the engine hangs."""
HANGS = 70
"""Exit code of a process whose engine hangs."""

logger = logging.getLogger(__name__)


class EvaluatorService(WorkerService):
    """An evaluator, which also ends if its engine hangs."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        registry: CollectorRegistry | None = None,
        load: LoadEngine = load_engine,
    ) -> None:
        registry = registry or CollectorRegistry()
        self._worker = Worker(settings, registry=registry, load=load)
        super().__init__(settings, self._worker, registry)

    @override
    async def stop(self) -> None:
        """Stop as every worker does.

        Raises:
            UnavailableError: the worker had ended without a request and must be restarted.
            SystemExit: it had ended because its model needs more of the GPU's memory.
        """
        try:
            await super().stop()
        except UnavailableError as error:
            if self._worker.makes_room:
                raise SystemExit(MAKES_ROOM) from error
            raise

    @override
    async def _check(self) -> None:
        """End this process if the engine hangs: a thread that hangs in a kernel cannot stop."""
        if not self._worker.hangs:
            return
        logger.critical("the engine hangs, this process ends")
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._worker.abandon), ABANDON_SECONDS)
        os._exit(HANGS)


def end_with_supervisor() -> None:
    """Stop when standard input ends: a new supervisor will start a worker on the same GPU.

    A second signal releases the current job, since the other worker may have started.
    """
    # Python aborts at exit if this thread holds the lock of `sys.stdin`.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    logger.error("the supervisor is gone")
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(CHECK_INTERVAL)


def main(load: LoadEngine = load_engine) -> None:
    """Run the evaluator until a signal, with engines that `load` loads."""
    settings = read_settings(EvaluatorSettings)
    if settings.supervised:
        threading.Thread(target=end_with_supervisor, name="supervisor", daemon=True).start()
    run_service(settings, lambda registry: EvaluatorService(settings, registry, load))


if __name__ == "__main__":
    main()
