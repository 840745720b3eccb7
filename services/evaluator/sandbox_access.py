"""The sandbox of a worker, whose health is checked before each job that needs it."""

import time
from collections.abc import Callable, Mapping

from modnorm.errors import EngineError, ModnormError, UnavailableError
from modnorm.sandbox import Isolation, Outcome, Program, Runner
from modnorm.tasks.sandboxed import require_sandbox, runs_programs

CHECK_SECONDS = 60.0
"""How long a measured isolation is valid; a sandbox that restarts measures it anew."""

FAULT_SECONDS = 10.0
"""Least time between a failed check and the next one, which is no sooner than the failed one took:
a sandbox that hangs leaves half of the time to jobs without programs."""


class SandboxAccess:
    """Runs programs in a sandbox and remembers its health.

    One thread checks; others may run programs meanwhile.

    Args:
        sandbox: Runs programs; None where this worker has no sandbox.
    """

    def __init__(self, sandbox: Runner | None) -> None:
        self.runner = None if sandbox is None else _ReportingRunner(sandbox, self._distrust)
        self._isolation: Isolation | None = None
        self._valid_until = 0.0
        self._fault: ModnormError | None = None
        self._next_check = 0.0

    def check(self, task: str) -> Mapping[str, str]:
        """Make sure that a task can be judged; return the isolation of its programs, if any.

        Raises:
            PreconditionError: the task runs programs, and there is no sandbox.
            UnavailableError: the sandbox cannot be reached, or does not isolate.
        """
        if not runs_programs(task):
            return {}
        sandbox = require_sandbox(task, self.runner)
        if self._isolation is None or time.monotonic() > self._valid_until:
            self._isolation = None
            self._isolation = self._measure(sandbox)
            self._valid_until = time.monotonic() + CHECK_SECONDS
        return {"sandbox": self._isolation.summary}

    def _distrust(self) -> None:
        """Check before the next job, so that a broken sandbox spends no attempts."""
        self._valid_until = 0.0

    def _measure(self, sandbox: Runner) -> Isolation:
        """Have the isolation measured, unless that failed a moment ago."""
        began = time.monotonic()
        if self._fault is not None and began < self._next_check:
            raise self._fault.with_traceback(None)
        self._fault = None
        try:
            return sandbox.check_health()
        except ModnormError as error:
            ended = time.monotonic()
            self._fault = error
            self._next_check = ended + max(FAULT_SECONDS, ended - began)
            raise


class _ReportingRunner:
    """A sandbox that calls back when it fails to run a program."""

    def __init__(self, sandbox: Runner, on_failure: Callable[[], None]) -> None:
        self._sandbox = sandbox
        self._on_failure = on_failure
        self.check_health = sandbox.check_health

    def execute(self, program: Program) -> Outcome:
        """Run a program and judge it."""
        try:
            return self._sandbox.execute(program)
        except (EngineError, UnavailableError):
            self._on_failure()
            raise
