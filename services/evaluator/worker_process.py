"""A worker process that is started again whenever it ends.

Its standard input is a pipe that nothing is written to: it ends with this process, however that
ends, and so tells the worker. It leads a process group: what its engine started ends with it.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

logger = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds before a new start: doubled with each that fails, as good as new after this long."""
START_SECONDS = 900.0
"""A worker that does not listen yet imports large libraries, perhaps from a slow disk."""
MAKES_ROOM = 76
"""Exit code of a worker whose model needs the memory of those that it shares a GPU with."""


class Child:
    """One worker process.

    Args:
        name: What logs call it.
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
        self._heard = 0.0

    def stop(self) -> None:
        """Have `run` end the process and return."""
        self._stopping.set()

    def hurry(self) -> None:
        """Tell a process that was told to stop once more: it then takes no longer."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def hear(self) -> None:
        """Note that it answered."""
        self._listens, self._heard = True, time.monotonic()

    def reach(self) -> None:
        """Note that it took a call, whether it answers or not: the time of its start is over."""
        if not self._listens:
            self.hear()

    def end_silence(self, longest: float) -> None:
        """Kill a process that has not answered for so many seconds; `run` starts another."""
        silence = time.monotonic() - self._heard
        if silence <= (longest if self._listens else max(longest, START_SECONDS)):
            return
        if self._process is not None and self._process.returncode is None:
            extra = {"worker": self._name, "silence": round(silence)}
            logger.error("a worker does not answer and is killed", extra=extra)
            self._process.kill()

    async def run(self) -> int | None:
        """Keep the process alive until told to stop; return once it is gone.

        Returns:
            MAKES_ROOM when it ended for others to go with it, else None.
        """
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            self._listens, self._heard = False, began
            code, reason = await self._run_once()
            if self._stopping.is_set() or code == MAKES_ROOM:
                return code if code == MAKES_ROOM else None
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            fields = {"worker": self._name, "reason": reason, "pause": pause}
            logger.error("a worker ended by itself", extra=fields)
            await self._told_to_stop(within=pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return None

    async def _run_once(self) -> tuple[int | None, str]:
        """Run the process to its end; return what it ended with, as a number and in words."""
        try:
            # In a group of its own: Ctrl-C reaches it through `stop`, and only so.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                env=self._environment,
                process_group=0,
            )
        except OSError as error:  # too many processes, no memory: neither lasts
            return None, str(error)
        self._process = process
        told = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            await self._end(process)
        code = await ended
        _kill_group(process.pid)
        return code, f"exit code {code}"

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


class Group:
    """Workers that share a GPU's memory evenly, kept alive.

    When a model does not fit the share of one, all of them end and one fewer is started, each with
    a larger share. It stays so: a model that fits more would be switched away from again.

    Args:
        name: What logs call it.
        engines: How many there are at first.
        make: Makes so many workers.
    """

    def __init__(self, name: str, engines: int, make: Callable[[int], Sequence[Child]]) -> None:
        self.children = tuple(make(engines))
        self._name = name
        self._make = make
        self._is_stopping = False

    async def run(self) -> None:
        """Keep the workers alive until told to stop; return once they are gone."""
        while not await self._run_until_crowded():
            fewer = len(self.children) - 1
            extra = {"device": self._name, "workers": fewer}
            logger.warning("a model does not fit its share of a GPU: fewer workers", extra=extra)
            self.children = tuple(self._make(fewer))

    def stop(self) -> None:
        """Have `run` end the workers and return."""
        self._is_stopping = True
        for child in self.children:
            child.stop()

    def hurry(self) -> None:
        """Tell workers that were told to stop once more."""
        for child in self.children:
            child.hurry()

    async def _run_until_crowded(self) -> bool:
        """Run the workers to their end; return whether that is final."""
        runs = [asyncio.create_task(child.run()) for child in self.children]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for child in self.children:
            child.stop()
        codes = await asyncio.gather(*runs)
        return self._is_stopping or MAKES_ROOM not in codes or len(self.children) == 1


def _kill_group(leader: int) -> None:
    """End what a worker left behind: ranks of its engine would keep the GPU's memory."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
