"""The sandbox of a worker, checked before work that needs it."""

import time
from collections.abc import Mapping

from modnorm.sandbox import Isolation, Runner
from modnorm.tasks.sandboxed import require_sandbox, runs_programs

CHECK_SECONDS = 60.0
"""How long a measured isolation is taken for granted; a sandbox that restarts measures anew."""


class Programs:
    """Where the programs of tasks run; used by one thread.

    Args:
        sandbox: Runs them; None where this worker has no sandbox.
    """

    def __init__(self, sandbox: Runner | None) -> None:
        self.sandbox = sandbox
        self._isolation: Isolation | None = None
        self._measured = 0.0

    def check(self, task: str) -> Mapping[str, str]:
        """Make sure that a task can be judged; return what to record about how it is.

        Raises:
            PreconditionError: the task runs programs, and there is no sandbox.
            UnavailableError: the sandbox cannot be reached, or does not isolate.
        """
        if not runs_programs(task):
            return {}
        if self._isolation is None or time.monotonic() - self._measured > CHECK_SECONDS:
            self._isolation = None
            self._isolation = require_sandbox(task, self.sandbox).check_health()
            self._measured = time.monotonic()
        return {"sandbox": self._isolation.summary}
