"""Cache of the tasks of jobs, with their scorers."""

from collections.abc import Mapping
from functools import lru_cache

from modnorm.errors import IncompatibleError, InvalidInputError, ModnormError
from modnorm.sandbox import Runner
from modnorm.services.evaluator.artifact_cache import KEPT
from modnorm.services.evaluator.sandbox_access import SandboxAccess
from modnorm.tasks import Task, get_stored_task, paper_tasks
from modnorm.tasks.row_loading import UnmarkedTask
from modnorm.v1 import evaluation_pb2 as messages


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
