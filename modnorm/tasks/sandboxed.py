"""The sandbox of tasks that run programs which a model wrote."""

from typing import TYPE_CHECKING

from modnorm.errors import PreconditionError

if TYPE_CHECKING:
    from modnorm.sandbox import Isolation, Runner

_RUN_PROGRAMS = frozenset({"mbpp"})


def runs_programs(task: str) -> bool:
    """Whether judging a task runs programs that a model wrote."""
    return task in _RUN_PROGRAMS


def check_sandbox(task: str, sandbox: "Runner | None") -> "Isolation | None":
    """Check, before any other work, that a task's programs can run safely.

    Returns:
        The isolation as measured now; None if the task runs no programs.
    """
    if not runs_programs(task):
        return None
    return require_sandbox(task, sandbox).check_health()


def require_sandbox(task: str, sandbox: "Runner | None") -> "Runner":
    """Return the sandbox of a task that runs programs."""
    if sandbox is None:
        raise PreconditionError(
            f"{task} runs programs that a model wrote, and there is no sandbox to run them in",
            field="task.name",
            remedy="start the sandbox service and set MODNORM_SANDBOX_TARGET to its HOST:PORT",
        )
    return sandbox
