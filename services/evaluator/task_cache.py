"""Cache of the tasks of jobs, with their scorers."""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from modnorm.errors import (
    EngineError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    UnavailableError,
)
from modnorm.sandbox import Isolation, Program, ProgramOutcome, Runner
from modnorm.services.evaluator.artifact_cache import KEPT
from modnorm.tasks import Task, get_stored_task, paper_tasks
from modnorm.tasks.registry import require_sandbox, runs_programs
from modnorm.tasks.row_loading import UnmarkedTask
from modnorm.v1 import evaluation_pb2 as messages

CHECK_SECONDS = 60.0
"""Seconds for which a successful check is valid."""

FAULT_SECONDS = 10.0
"""Least pause after a failed check. The pause is at least as long as the check took, so that a
hanging sandbox takes at most half of the time from jobs without programs."""


class SandboxAccess:
    """Runs programs in a sandbox and caches its health."""

    def __init__(self, sandbox: Runner | None) -> None:
        self.runner = None if sandbox is None else _ReportingRunner(sandbox, self._distrust)
        self._health: Isolation | ModnormError | None = None
        self._valid_until = 0.0

    def check(self, task: str) -> Mapping[str, str]:
        """Return the isolation of a task's programs; empty if the task runs none."""
        if not runs_programs(task):
            return {}
        sandbox = require_sandbox(task, self.runner)
        if self._health is None or time.monotonic() > self._valid_until:
            self._health = self._measure(sandbox)
        if isinstance(self._health, ModnormError):
            raise self._health.with_traceback(None)
        return {"sandbox": self._health.summary}

    def _distrust(self) -> None:
        """Invalidate the cached health, so that a broken sandbox costs jobs no attempts."""
        if isinstance(self._health, Isolation):
            self._valid_until = 0.0

    def _measure(self, sandbox: Runner) -> Isolation | ModnormError:
        """Return the isolation of a sandbox, or the error of its health check."""
        began = time.monotonic()
        try:
            isolation = sandbox.check_health()
        except ModnormError as error:
            ended = time.monotonic()
            self._valid_until = ended + max(FAULT_SECONDS, ended - began)
            return error
        self._valid_until = time.monotonic() + CHECK_SECONDS
        return isolation


class _ReportingRunner:
    """A sandbox that calls back when it fails to run a program."""

    def __init__(self, sandbox: Runner, on_failure: Callable[[], None]) -> None:
        self._sandbox = sandbox
        self._on_failure = on_failure
        self.check_health = sandbox.check_health

    def execute(self, program: Program) -> ProgramOutcome:
        try:
            return self._sandbox.execute(program)
        except (EngineError, UnavailableError):
            self._on_failure()
            raise


class UnfitError(Exception):
    """This worker lacks a resource that the job needs; another worker may have it."""


class TaskCache:
    """Creates tasks, and checks the sandbox of tasks that run programs; used by one thread."""

    def __init__(self, sandbox: Runner | None) -> None:
        self._sandbox = SandboxAccess(sandbox)
        self._made = lru_cache(maxsize=KEPT)(self._make)

    def check(self, task: str) -> Mapping[str, str]:
        """Check the sandbox of a task; return its entry for the report's environment."""
        try:
            return self._sandbox.check(task)
        except ModnormError as error:  # also if the sandbox refuses the token
            raise UnfitError(str(error)) from error

    def of(self, job: messages.Job) -> Task:
        """Return a job's task with the scorer of its experiment; questions get votes only."""
        declaration = job.declaration if job.HasField("declaration") else None
        task = self._made(job.task, job.scorer, declaration)
        return UnmarkedTask(task) if job.split == messages.SPLIT_QUESTIONS else task

    def _make(self, name: str, scorer: str, declaration: str | None) -> Task:
        try:
            return get_stored_task(
                name, scorer=scorer, sandbox=self._sandbox.runner, declaration=declaration
            )
        except InvalidInputError as error:
            if name in paper_tasks():
                raise IncompatibleError(
                    f"this worker does not score {name} with {scorer}",
                    remedy="run evaluators of the version that admitted the experiment",
                ) from error
            raise UnfitError(
                f"this worker does not have {name} with the scorer {scorer}: {error.message}; "
                "install the package in the version that the experiment was submitted with"
            ) from error
