"""How a task has programs run that a model wrote. This package runs none itself."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from modnorm.errors import PreconditionError


class Verdict(StrEnum):
    """What became of one program."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    SANDBOX_ERROR = "sandbox_error"
    """The sandbox failed, not the program: never a score."""


class CodeRunner(Protocol):
    """Runs untrusted programs; safe to call from any thread."""

    def check(self) -> None:
        """Return when programs can be run safely now.

        Raises:
            PreconditionError: the isolation is not good enough; the remedy says what is missing.
            UnavailableError: the sandbox cannot be reached.
        """

    def run(self, setup: str, code: str, tests: Sequence[str]) -> Verdict:
        """Run set-up code, a program and its tests, in this order, in one fresh interpreter.

        Args:
            setup: Trusted code of the data set, run first; may be empty.
            code: The program.
            tests: Statements that raise when the program is wrong.

        Raises:
            UnavailableError: the sandbox cannot be reached.
        """


def require_runner(runner: CodeRunner | None, task: str) -> CodeRunner:
    """Return a runner that is there and healthy.

    Raises:
        PreconditionError: there is none, or its isolation is not good enough.
        UnavailableError: it cannot be reached.
    """
    if runner is None:
        raise PreconditionError(
            f"{task} runs programs that a model wrote, and there is no sandbox to run them in",
            field="task.name",
            remedy="start a sandbox service and give its address, or run where the embedded "
            "sandbox is healthy",
        )
    runner.check()
    return runner
