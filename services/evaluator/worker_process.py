"""Worker processes, each started again whenever it ends, and the group that shares a GPU.

A worker's standard input is a pipe from the supervisor, and its end means that the supervisor is
gone. A worker leads a process group, so that the processes of its engine end with it.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from services.common.healthcheck import check

logger = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a new start: doubled at each failure, reset by a run of this length."""
START_SECONDS = 900.0
"""Longest time until a worker listens: it may import large libraries from a slow disk."""
CHECK_SECONDS = 5.0
"""Deadline of a health check."""
ANSWERS = frozenset({"SERVING", "NOT_SERVING", "SERVICE_UNKNOWN", "UNKNOWN"})
"""Answers to a health check; anything else is silence."""
UNANSWERED = "DEADLINE_EXCEEDED"
"""The result for a worker that listens and does not answer, as a stopped process does."""
MAKES_ROOM = 76
"""Exit code of a worker whose model needs the memory of others on its GPU."""


class WorkerProcess:
    """One worker process.

    Args:
        name: Its name in logs.
        command: Program and arguments.
        environment: Its whole environment.
        address: Where it answers health checks.
        grace: Seconds after which it is killed when it was told to stop.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        address: str,
        grace: float,
    ) -> None:
        self.address = address
        self._name = name
        self._command = tuple(command)
        self._environment = dict(environment)
        self._grace = grace
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._listens = False
        self._last_answer = 0.0

    def stop(self) -> None:
        """Have `run` end the process and return."""
        self._stopping.set()

    def hurry(self) -> None:
        """Tell a process that is stopping to take no longer."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def is_serving(self, longest_silence: float) -> bool:
        """Check its health; kill it when it has been silent for so many seconds.

        `run` starts another then. A process that does not listen yet has `START_SECONDS`.
        """
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
        """Keep the process alive until told to stop; return once it has ended.

        Returns:
            MAKES_ROOM if it ended for want of memory, else None.
        """
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            self._listens, self._last_answer = False, began
            code, reason = await self._run_once()
            if self._stopping.is_set() or code == MAKES_ROOM:
                return code if code == MAKES_ROOM else None
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            fields = {"worker": self._name, "reason": reason, "pause": pause}
            logger.error("a worker ended by itself", extra=fields)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return None

    async def _run_once(self) -> tuple[int | None, str]:
        """Run the process to its end; return its exit code and the reason in words."""
        try:
            # In a group of its own, so that Ctrl-C reaches it only through `stop`.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                env=self._environment,
                process_group=0,
            )
        except OSError as error:  # too many processes or no memory, which passes
            return None, str(error)
        self._process = process
        told = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            await self._end(process)
        code = await ended
        # Ranks of its engine that are left would keep the GPU's memory.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return code, f"exit code {code}"

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Ask the process to end; kill it after the grace period."""
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._grace)
        except TimeoutError:
            logger.warning("a worker did not stop in time", extra={"worker": self._name})
            process.kill()


class WorkerGroup:
    """Workers that share a GPU's memory evenly.

    When a model does not fit the share of one, all of them end and one fewer starts, each with a
    larger share. Their number never grows again, as the model may come back.

    Args:
        name: Its name in logs.
        engines: Number of workers at first.
        make: Makes so many workers.
    """

    def __init__(
        self, name: str, engines: int, make: Callable[[int], Sequence[WorkerProcess]]
    ) -> None:
        self.workers = tuple(make(engines))
        self._name = name
        self._make = make
        self._is_stopping = False

    async def run(self) -> None:
        """Keep the workers alive until told to stop; return once they have ended."""
        while not await self._run_until_crowded():
            fewer = len(self.workers) - 1
            extra = {"device": self._name, "workers": fewer}
            logger.warning("a model does not fit its share of a GPU: fewer workers", extra=extra)
            self.workers = tuple(self._make(fewer))

    def stop(self) -> None:
        """Have `run` end the workers and return."""
        self._is_stopping = True
        for worker in self.workers:
            worker.stop()

    def hurry(self) -> None:
        """Tell workers that are stopping to take no longer."""
        for worker in self.workers:
            worker.hurry()

    async def _run_until_crowded(self) -> bool:
        """Run the workers to their end; return whether that is final."""
        runs = [asyncio.create_task(worker.run()) for worker in self.workers]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for worker in self.workers:
            worker.stop()
        codes = await asyncio.gather(*runs)
        return self._is_stopping or MAKES_ROOM not in codes or len(self.workers) == 1
