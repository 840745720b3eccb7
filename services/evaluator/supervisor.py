"""The supervisor of a host's evaluators: `python -m modnorm.services.evaluator.supervisor`."""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from typing_extensions import override

from modnorm.errors import EngineError
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import SupervisorSettings, inherited_environment
from modnorm.services.evaluator.placement import (
    ENGINES_UNDER_MPS,
    Place,
    address_of,
    chosen_devices,
    chosen_mps,
    engines_per_gpu,
    environment_of,
    grouped,
)
from modnorm.services.evaluator.worker_process import WorkerGroup, WorkerProcess

COMMAND = (sys.executable, "-m", "modnorm.services.evaluator.server")
CHECK_INTERVAL = 1.0
"""Seconds between two health checks of a worker."""
STOP_SECONDS = 26.0
"""Seconds beyond the grace period after which a stopping worker is killed."""

logger = logging.getLogger(__name__)


class Supervisor(GrpcService):
    """Keeps workers running and answers health checks: SERVING while all workers are."""

    def __init__(  # noqa: PLR0913 - limits are keyword-only
        self,
        settings: SupervisorSettings,
        devices: Sequence[str],
        command: Sequence[str] = COMMAND,
        *,
        most_engines: int = ENGINES_UNDER_MPS,
        most_failures: int | None = None,
        stop_seconds: float = STOP_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings)
        self._settings = settings
        self._command = tuple(command)
        self._most_failures = most_failures
        self._worker_grace = settings.stop_grace + stop_seconds
        with ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="modnorm-"))
            self._folder, inherited = Path(home), environment or inherited_environment()
            engines = engines_per_gpu(settings, most_engines) if devices else 1
            self._mps = chosen_mps(settings.mps, inherited, self._folder) if engines > 1 else None
            if self._mps is not None:
                stack.callback(self._mps.close)
            self._inherited = {**inherited} | (self._mps.changes if self._mps else {})
            if self._mps is None and settings.engines_per_gpu == "auto":
                engines = 1
            self._groups = [
                WorkerGroup(
                    device or "cpu", engines, partial(self._make_workers, index * engines, device)
                )
                for index, device in enumerate(grouped(devices, settings.gpus_per_worker) or ("",))
            ]
            self._resources = stack.pop_all()
        self._runs: list[asyncio.Task[None]] = []
        self._health: asyncio.Task[None] | None = None

    @override
    async def start(self) -> None:
        with ExitStack() as on_error:
            on_error.callback(self._resources.close)
            await super().start()
            on_error.pop_all()
        await self.set_serving(serving=False)
        self._runs = [asyncio.create_task(_run_logged(group)) for group in self._groups]
        self._health = asyncio.create_task(self._report_health())
        extra = {"count": len(self._workers), "mps": self._mps is not None}
        logger.info("workers", extra=extra)

    async def wait(self) -> None:
        """Wait until the workers of all GPUs have ended."""
        for error in await asyncio.gather(*self._runs, return_exceptions=True):
            if error is not None:
                raise error

    @override
    async def stop(self) -> None:
        """Stop all workers, which finish or release their jobs, then close."""
        if self._health is not None:
            self._health.cancel()
        for group in self._groups:
            group.stop()
        await asyncio.gather(*self._runs, return_exceptions=True)
        await super().stop()
        await asyncio.to_thread(self._resources.close)

    @override
    def stop_now(self) -> None:
        """Let all workers release their jobs now."""
        for group in self._groups:
            group.stop_now()

    @property
    def _workers(self) -> Sequence[WorkerProcess]:
        return [worker for group in self._groups for worker in group.workers]

    def _make_workers(self, first: int, device: str, engines: int) -> Sequence[WorkerProcess]:
        """Return new workers of a device, numbered from `first`."""
        places = [Place(first + slot, device, slot, engines) for slot in range(engines)]
        return [
            (
                WorkerProcess(
                    f"{place.device}.{place.slot}" if place.device else "cpu",
                    self._command,
                    environment_of(place, self._settings, self._inherited, self._folder),
                    address=address_of(place, self._folder),
                    grace=self._worker_grace,
                    most_failures=self._most_failures,
                )
            )
            for place in places
        ]

    async def _report_health(self) -> None:
        while True:
            try:
                silence = self._settings.silence_seconds
                checks = [worker.is_serving(silence) for worker in self._workers]
                serving = await asyncio.gather(*checks)
                await self.set_serving(serving=all(serving))
            except Exception:  # for example too many open files, which is temporary
                logger.exception("the workers were not checked")
            await asyncio.sleep(CHECK_INTERVAL)


async def _run_logged(group: WorkerGroup) -> None:
    """Run a group; log at once why it is given up, since others may work on."""
    try:
        await group.run()
    except EngineError as error:
        logger.critical("the workers of a GPU are given up: %s", error)
        raise


def main() -> None:
    """Run the supervisor until a signal."""
    settings = read_settings(SupervisorSettings)
    # Only the workers serve metrics.
    own = settings.model_copy(update={"metrics_address": ""})
    run_service(
        own,
        lambda _: Supervisor(settings, chosen_devices(settings.devices, settings.visible_devices)),
    )


if __name__ == "__main__":
    main()
