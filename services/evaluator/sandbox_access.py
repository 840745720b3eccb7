"""The sandbox of a worker, checked before work that needs it."""

import math
import time
from collections.abc import Callable, Mapping

from modnorm.errors import EngineError, ModnormError, UnavailableError
from modnorm.sandbox import Isolation, Outcome, Program, Runner
from modnorm.tasks.sandboxed import require_sandbox, runs_programs

CHECK_SECONDS = 60.0
"""How long a measured isolation is taken for granted; a sandbox that restarts measures anew."""

FAULT_SECONDS = 10.0
"""How long at least a sandbox that failed the look is not looked at again. As long as the look
took, where that is more: one that hangs leaves half of the time to jobs that need none."""


class Programs:
    """Where the programs of tasks run. One thread checks; others may run programs beside it.

    Args:
        sandbox: Runs them; None where this worker has no sandbox.
    """

    def __init__(self, sandbox: Runner | None) -> None:
        self.sandbox = None if sandbox is None else _Doubted(sandbox, self._doubt)
        self._isolation: Isolation | None = None
        self._measured = 0.0
        self._fault: ModnormError | None = None
        self._next_look = 0.0

    def check(self, task: str) -> Mapping[str, str]:
        """Make sure that a task can be judged; return what to record about how it is.

        Raises:
            PreconditionError: the task runs programs, and there is no sandbox.
            UnavailableError: the sandbox cannot be reached, or does not isolate.
        """
        if not runs_programs(task):
            return {}
        sandbox = require_sandbox(task, self.sandbox)
        if self._isolation is None or time.monotonic() - self._measured > CHECK_SECONDS:
            self._isolation = None
            self._isolation = self._look(sandbox)
            self._measured = time.monotonic()
        return {"sandbox": self._isolation.summary}

    def _doubt(self) -> None:
        """Have the next check look: jobs go back uncounted while the sandbox is of no use."""
        self._measured = -math.inf

    def _look(self, sandbox: Runner) -> Isolation:
        """Have the isolation measured, unless that failed a moment ago."""
        began = time.monotonic()
        if self._fault is not None and began < self._next_look:
            raise self._fault.with_traceback(None)
        self._fault = None
        try:
            return sandbox.check_health()
        except ModnormError as error:
            ended = time.monotonic()
            self._fault = error
            self._next_look = ended + max(FAULT_SECONDS, ended - began)
            raise


class _Doubted:
    """A sandbox that tells when it failed at a program."""

    def __init__(self, sandbox: Runner, doubt: Callable[[], None]) -> None:
        self._sandbox = sandbox
        self._doubt = doubt
        self.check_health = sandbox.check_health

    def execute(self, program: Program) -> Outcome:
        """Run a program and judge it."""
        try:
            return self._sandbox.execute(program)
        except (EngineError, UnavailableError):
            self._doubt()
            raise
