"""The sandbox: it is measured before its first program and restarted when it dies."""

import threading
import time
from collections.abc import Collection
from typing import Protocol, Self

from modnorm.sandbox.execution import execute, plan_tests
from modnorm.sandbox.isolation import Isolation, measure
from modnorm.sandbox.jail.jail_messages import Mechanism
from modnorm.sandbox.program import Program, ProgramOutcome
from modnorm.sandbox.session import ZygoteClient


class Runner(Protocol):
    """Runs programs: a sandbox of this process or a remote one."""

    def execute(self, program: Program) -> ProgramOutcome:
        """Run a program and judge it."""

    def check_health(self) -> Isolation:
        """Measure the isolation; raise UnavailableError unless all guarantees hold."""


class Sandbox:
    """Runs untrusted programs, each in a new process; threads may share it."""

    def __init__(self, mechanisms: Collection[Mechanism] = frozenset(Mechanism)) -> None:
        self._mechanisms = frozenset(mechanisms)
        self._lock = threading.Lock()
        self._zygote: ZygoteClient | None = None
        self._measured: tuple[ZygoteClient, Isolation] | None = None
        self._began = 0.0

    def execute(self, program: Program) -> ProgramOutcome:
        plan_tests(program)
        return execute(self._healthy(), program)

    def check_health(self) -> Isolation:
        """Measure the isolation now."""
        isolation = self.measure()
        isolation.require()
        return isolation

    def measure(self) -> Isolation:
        """Measure the isolation now and return it, healthy or not.

        Meanwhile programs run by the last measurement. Waiting callers share the next one.
        """
        requested = time.monotonic()
        with self._lock:
            current = self._current()
            if current is None or self._began < requested:
                current = self._measure()
            return current[1]

    def _current(self) -> tuple[ZygoteClient, Isolation] | None:
        """Return the running jail and its last measurement; None without either."""
        measured = self._measured
        return measured if measured is not None and measured[0].alive else None

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
        current = self._current()
        if current is None:
            with self._lock:
                current = self._current() or self._measure()
        zygote, isolation = current
        isolation.require()
        return zygote

    def _end(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        self._zygote = self._measured = None

    def close(self) -> None:
        """End the sandbox and all its programs; a later program starts it again."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
