"""Cache of the tasks of jobs, with their scorers."""

import time
from collections.abc import Mapping
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
    """A sandbox whose health is cached; a failed program invalidates the cached health."""

    def __init__(self, sandbox: Runner) -> None:
        self._sandbox = sandbox
        self._health: Isolation | ModnormError | None = None
        self._valid_until = 0.0

    def execute(self, program: Program) -> ProgramOutcome:
        """Run a program."""
        try:
            return self._sandbox.execute(program)
        except (EngineError, UnavailableError):
            if isinstance(self._health, Isolation):  # a broken sandbox costs jobs no attempts
                self._valid_until = 0.0
            raise

    def check_health(self) -> Isolation:
        """Return the isolation of the sandbox, as it was measured not long ago."""
        if self._health is None or time.monotonic() > self._valid_until:
            began = time.monotonic()
            try:
                self._health = self._sandbox.check_health()
                self._valid_until = time.monotonic() + CHECK_SECONDS
            except ModnormError as error:
                self._health, ended = error, time.monotonic()
                self._valid_until = ended + max(FAULT_SECONDS, ended - began)
        if isinstance(self._health, ModnormError):
            raise self._health.with_traceback(None)
        return self._health


class UnfitError(Exception):
    """This worker lacks a resource that the job needs; another worker may have it."""


class TaskCache:
    """Creates tasks, and checks the sandbox of tasks that run programs; used by one thread."""

    def __init__(self, sandbox: Runner | None) -> None:
        self._sandbox = sandbox and SandboxAccess(sandbox)
        self._made = lru_cache(maxsize=KEPT)(self._make)

    def check(self, task: str) -> Mapping[str, str]:
        """Check the sandbox of a task that runs programs; return its entry for the environment."""
        if not runs_programs(task):
            return {}
        try:
            return {"sandbox": require_sandbox(task, self._sandbox).check_health().summary}
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
                name, scorer=scorer, sandbox=self._sandbox, declaration=declaration
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
