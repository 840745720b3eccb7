"""The sandbox of a worker, checked before work that needs it."""

import time
from collections.abc import Mapping

from modnorm.errors import ModnormError
from modnorm.sandbox import Isolation, Runner
from modnorm.tasks.sandboxed import require_sandbox, runs_programs

CHECK_SECONDS = 60.0
"""How long a measured isolation is taken for granted; a sandbox that restarts measures anew."""

FAULT_SECONDS = 10.0
"""How long at least a sandbox that failed the look is not looked at again. As long as the look
took, where that is more: one that hangs leaves half of the time to jobs that need none."""


class Programs:
    """Where the programs of tasks run; used by one thread.

    Args:
        sandbox: Runs them; None where this worker has no sandbox.
    """

    def __init__(self, sandbox: Runner | None) -> None:
        self.sandbox = sandbox
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
