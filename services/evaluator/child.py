"""A worker process that is started again whenever it ends.

Its standard input is a pipe that nothing is written to: it ends with this process, however that
ends, and so tells the worker.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

logger = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a new start: doubled with each that fails, as good as new after this long."""


class Child:
    """One worker process.

    Args:
        name: What logs call it.
        command: Program and arguments.
        environment: Its whole environment.
        grace: Seconds after which it is killed when it was told to stop.
        first_pause: Seconds before the first new start.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        grace: float,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._name = name
        self._command = tuple(command)
        self._environment = dict(environment)
        self._grace = grace
        self._first_pause = first_pause
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    def stop(self) -> None:
        """Have `run` end the process and return."""
        self._stopping.set()

    def hurry(self) -> None:
        """Tell a process that was told to stop once more: it then takes no longer."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def run(self) -> None:
        """Keep the process alive until told to stop; return once it is gone."""
        pause = self._first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            reason = await self._run_once()
            if self._stopping.is_set():
                return
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = self._first_pause
            fields = {"worker": self._name, "reason": reason, "pause": pause}
            logger.error("a worker ended by itself", extra=fields)
            await self._told_to_stop(within=pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_once(self) -> str:
        """Run the process to its end; return what it ended with."""
        try:
            # In a group of its own: Ctrl-C reaches it through `stop`, and only so.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                env=self._environment,
                process_group=0,
            )
        except OSError as error:  # too many processes, no memory: neither lasts
            return str(error)
        self._process = process
        told = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            await self._end(process)
        return f"exit code {await ended}"

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Ask the process to end; kill it when it has not in time."""
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._grace)
        except TimeoutError:
            logger.warning("a worker did not stop in time", extra={"worker": self._name})
            process.kill()

    async def _told_to_stop(self, *, within: float) -> None:
        """Wait for some seconds, or until told to stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), within)
        except TimeoutError:
            return
