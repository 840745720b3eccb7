"""The sandbox that callers use: measured before its first program, restarted when it dies."""

import threading
from collections.abc import Collection
from typing import Protocol, Self

from modnorm.errors import EngineError
from modnorm.sandbox.canaries import measure
from modnorm.sandbox.execution import execute, plan_tests
from modnorm.sandbox.isolation import Isolation
from modnorm.sandbox.jail.policy import Mechanism
from modnorm.sandbox.program import Outcome, Program
from modnorm.sandbox.zygote import Zygote


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
        self._zygote: Zygote | None = None
        self._isolation: Isolation | None = None

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

        Raises:
            UnavailableError: the sandbox does not start.
            EngineError: the sandbox failed meanwhile.
        """
        with self._lock:
            return self._measure()

    def _measure(self) -> Isolation:
        if self._zygote is None or not self._zygote.alive:
            self._end()
            self._zygote = Zygote(self._mechanisms)
        self._isolation = None
        self._isolation = measure(self._zygote)
        return self._isolation

    def _healthy(self) -> Zygote:
        with self._lock:
            if self._isolation is None or self._zygote is None or not self._zygote.alive:
                self._measure()
            if self._isolation is None or self._zygote is None:
                raise EngineError("the sandbox was closed meanwhile")
            self._isolation.require()
            return self._zygote

    def _end(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        self._zygote = self._isolation = None

    def close(self) -> None:
        """End the sandbox and all programs in it; a later program starts it anew."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
