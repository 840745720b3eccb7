"""The supervisor of a host's evaluators: `python -m modnorm.services.evaluator.supervisor`."""

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from typing_extensions import override

from modnorm.errors import EngineError
from modnorm.services.common.healthcheck import check
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

COMMAND = (sys.executable, "-m", "modnorm.services.evaluator")
CHECK_INTERVAL = 1.0
"""Seconds between two health checks of a worker."""
STOP_SECONDS = 26.0
"""Seconds beyond the grace period after which a stopping worker is killed."""

logger = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a restart: doubled at each failure, reset by a run of `LONGEST_PAUSE`."""
START_SECONDS = 900.0
"""Longest time until a worker listens: imports from a slow disk take minutes."""
CHECK_SECONDS = 5.0
"""Deadline of a health check."""
ANSWERS = frozenset({"SERVING", "NOT_SERVING", "SERVICE_UNKNOWN", "UNKNOWN"})
"""Results of a health check that count as an answer."""
UNANSWERED = "DEADLINE_EXCEEDED"
"""Result for a worker that listens but does not answer, for example a stopped process."""
MAKES_ROOM = 76
"""Exit code of a worker whose model needs more of the GPU's memory than its share."""


class WorkerProcess:
    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        *,
        address: str,
        grace: float,
        most_failures: int | None = None,
    ) -> None:
        self.address = address
        self._name = name
        self._environment = dict(environment)
        self._grace = grace
        self._most_failures = most_failures
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._listens = False
        self._last_answer = 0.0

    def stop(self) -> None:
        """Make `run` end the process and return."""
        self._stopping.set()

    def stop_now(self) -> None:
        """Send a stopping process another signal, which ends its grace period."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)

    async def is_serving(self, longest_silence: float) -> bool:
        """Return whether the worker is SERVING; kill it after `longest_silence` seconds."""
        status = await asyncio.to_thread(check, self.address, timeout=CHECK_SECONDS)
        silence = time.monotonic() - self._last_answer
        if status in ANSWERS or (status == UNANSWERED and not self._listens):
            self._listens, self._last_answer = True, time.monotonic()
        elif silence > (longest_silence if self._listens else max(longest_silence, START_SECONDS)):
            self._kill_silent(silence)
        return status == "SERVING"

    def _kill_silent(self, silence: float) -> None:
        if self._process is not None and self._process.returncode is None:
            extra = {"worker": self._name, "silence": round(silence)}
            logger.error("a worker does not answer and is killed", extra=extra)
            self._process.kill()

    async def run(self) -> int | None:
        """Keep the process running until `stop`; return once it has ended."""
        pause, failures = FIRST_PAUSE, 0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._listens, self._last_answer = False, began
            code, reason = await self._run_once()
            if self._stopping.is_set() or code == MAKES_ROOM:
                return code if code == MAKES_ROOM else None
            if time.monotonic() - began > LONGEST_PAUSE:
                pause, failures = FIRST_PAUSE, 0
            failures += 1
            if failures == self._most_failures:
                raise EngineError(f"an evaluator ended {failures} times in a row: {reason}")
            fields = {"worker": self._name, "reason": reason, "pause": pause}
            logger.error("a worker ended and is restarted", extra=fields)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return None

    async def _run_once(self) -> tuple[int | None, str]:
        """Run the process to its end; return its exit code and a description of its end."""
        try:
            # In a group of its own, so that Ctrl-C reaches it only through `stop`.
            process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=asyncio.subprocess.PIPE, env=self._environment, process_group=0
            )
        except OSError as error:  # too many processes or no memory, which is temporary
            return None, str(error)
        self._process = process
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((stopping, ended), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await self._end(process)
        code = await ended
        # Remaining ranks of its engine would keep the GPU's memory.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return code, f"exit code {code}"

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Terminate the process; kill it after the grace period."""
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._grace)
        except TimeoutError:
            logger.warning("a worker did not stop in time", extra={"worker": self._name})
            process.kill()


class WorkerGroup:
    """Workers that share a GPU's memory evenly.

    If a model does not fit a worker's share, all workers end and one fewer is started, each with a
    larger share. The number never grows again, since the model may return.
    """

    def __init__(
        self, name: str, engines: int, make: Callable[[int], Sequence[WorkerProcess]]
    ) -> None:
        self.workers = tuple(make(engines))
        self._name = name
        self._make = make
        self._is_stopping = False

    async def run(self) -> None:
        """Keep the workers running until `stop`; return once they have ended."""
        while not await self._run_until_one_does_not_fit():
            fewer = len(self.workers) - 1
            extra = {"device": self._name, "workers": fewer}
            logger.warning("a model does not fit its share of a GPU: fewer workers", extra=extra)
            self.workers = tuple(self._make(fewer))

    def stop(self) -> None:
        """Make `run` end the workers and return."""
        self._is_stopping = True
        for worker in self.workers:
            worker.stop()

    def stop_now(self) -> None:
        """End the grace period of stopping workers."""
        for worker in self.workers:
            worker.stop_now()

    async def _run_until_one_does_not_fit(self) -> bool:
        """Run the workers to their end; return False if fewer workers have to be started."""
        runs = [asyncio.create_task(worker.run()) for worker in self.workers]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for worker in self.workers:
            worker.stop()
        codes = await asyncio.gather(*runs, return_exceptions=True)
        for code in codes:
            if isinstance(code, BaseException):
                raise code
        return self._is_stopping or MAKES_ROOM not in codes or len(self.workers) == 1


class Supervisor(GrpcService):
    """Keeps workers running and answers health checks: SERVING while all workers are."""

    def __init__(  # noqa: PLR0913 - limits are keyword-only
        self,
        settings: SupervisorSettings,
        devices: Sequence[str],
        *,
        most_engines: int = ENGINES_UNDER_MPS,
        most_failures: int | None = None,
        stop_seconds: float = STOP_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings)
        self._settings = settings
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
        places = (Place(first + slot, device, slot, engines) for slot in range(engines))
        return [
            WorkerProcess(
                f"{device}.{place.slot}" if device else "cpu",
                environment_of(place, self._settings, self._inherited, self._folder),
                address=address_of(place, self._folder),
                grace=self._worker_grace,
                most_failures=self._most_failures,
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
    settings = read_settings(SupervisorSettings)
    # Only the workers serve metrics.
    own = settings.model_copy(update={"metrics_address": ""})
    run_service(
        own,
        lambda _: Supervisor(settings, chosen_devices(settings.devices, settings.visible_devices)),
    )


if __name__ == "__main__":
    main()
