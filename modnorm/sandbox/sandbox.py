"""The sandbox that callers use: measured before its first program, restarted when it dies."""

import threading
import time
from collections.abc import Collection
from typing import Protocol, Self

from modnorm.sandbox.execution import execute, plan_tests
from modnorm.sandbox.isolation import Isolation
from modnorm.sandbox.isolation_measurement import measure
from modnorm.sandbox.jail.jail_messages import Mechanism
from modnorm.sandbox.program import Outcome, Program
from modnorm.sandbox.zygote_client import ZygoteClient


class Runner(Protocol):
    """Whatever runs programs: a sandbox of this process or one behind a network."""

    def execute(self, program: Program) -> Outcome:
        """Run a program and judge it."""

    def check_health(self) -> Isolation:
        """Measure the isolation; raise UnavailableError without all guarantees."""


class Sandbox:
    """Runs untrusted programs, each in a fresh process of its own; threads may share it.

    Args:
        mechanisms: Fences to use where the kernel has them; all by default. Fewer may leave a
            guarantee broken, and then no program runs.
    """

    def __init__(self, mechanisms: Collection[Mechanism] = frozenset(Mechanism)) -> None:
        self._mechanisms = frozenset(mechanisms)
        self._lock = threading.Lock()
        self._zygote: ZygoteClient | None = None
        self._measured: tuple[ZygoteClient, Isolation] | None = None
        self._began = 0.0

    def execute(self, program: Program) -> Outcome:
        """Run a program and judge it.

        Raises:
            InvalidInputError: a test cannot be judged; nothing ran.
            UnavailableError: the sandbox does not isolate here; nothing ran.
            EngineError: the sandbox failed meanwhile. This is no verdict: try again.
        """
        plan_tests(program)
        return execute(self._healthy(), program)

    def check_health(self) -> Isolation:
        """Measure the isolation now.

        Raises:
            UnavailableError: a guarantee does not hold.
            EngineError: the sandbox failed meanwhile.
        """
        isolation = self.measure()
        isolation.require()
        return isolation

    def measure(self) -> Isolation:
        """Measure the isolation now, whatever it is; programs run only if it is healthy.

        Programs go on meanwhile by the last measurement; callers that wait for one share the next.

        Raises:
            UnavailableError: the sandbox does not start.
            EngineError: the sandbox failed meanwhile.
        """
        asked = time.monotonic()
        with self._lock:
            found = self._current()
            return (self._measure() if found is None or self._began < asked else found)[1]

    def _current(self) -> tuple[ZygoteClient, Isolation] | None:
        """Return the jail that runs and its last measurement, None without either."""
        found = self._measured
        return found if found is not None and found[0].alive else None

    def _measure(self) -> tuple[ZygoteClient, Isolation]:
        self._began = time.monotonic()
        if self._zygote is None or not self._zygote.alive:
            self._end()
            self._zygote = ZygoteClient(self._mechanisms)
        try:
            self._measured = self._zygote, measure(self._zygote)
        except BaseException:
            self._measured = None
            raise
        return self._measured

    def _healthy(self) -> ZygoteClient:
        found = self._current()
        if found is None:
            with self._lock:
                found = self._current() or self._measure()
        zygote, isolation = found
        isolation.require()
        return zygote

    def _end(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        self._zygote = self._measured = None

    def close(self) -> None:
        """End the sandbox and all programs in it; a later program starts it anew."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
