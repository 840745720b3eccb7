"""The model that a worker holds: loaded once, kept over jobs and experiments."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine
from modnorm.errors import IncompatibleError
from modnorm.tasks import Task
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.artifacts import KEPT, Artifacts

logger = logging.getLogger(__name__)

Prompts = tuple[Sequence[int], ...]
"""Token ids of each row's prompt."""
LoadEngine = Callable[[str, Checkpoint], Engine]
"""Loads a model into an engine by name; `modnorm.engines.load_engine` does."""


class LoadedModel:
    """An engine, and the prompts that it was asked.

    Args:
        checkpoint: The model on disk.
        engine: Engine by name.
        load: Makes the engine.
        artifacts: Where rows are found.
    """

    def __init__(
        self, checkpoint: Checkpoint, engine: str, load: LoadEngine, artifacts: Artifacts
    ) -> None:
        self.key = (checkpoint.digest, engine)
        self.engine = load(engine, checkpoint)
        self._prompts: dict[tuple[str, str], Prompts] = {}
        self._encoder = PromptEncoder(checkpoint)
        self._artifacts = artifacts

    def prompts(self, task: Task, rows_digest: str) -> Prompts:
        """Return the prompts of a task's rows, in row order."""
        key = (task.scorer, rows_digest)
        if key not in self._prompts:
            while len(self._prompts) >= KEPT:
                self._prompts.pop(next(iter(self._prompts)))
            rows = self._artifacts.rows(rows_digest)
            self._prompts[key] = tuple(self._encoder.encode(task.messages(row)) for row in rows)
        return self._prompts[key]


class Models:
    """The one model that is loaded; another job's model takes its place.

    Args:
        artifacts: Where rows are found.
        roots: Directories under which local models must lie; anywhere when None.
        load: Makes engines.
    """

    def __init__(
        self, artifacts: Artifacts, roots: Sequence[Path] | None, load: LoadEngine
    ) -> None:
        self._artifacts = artifacts
        self._roots = roots
        self._load = load
        self._loaded: LoadedModel | None = None

    def load(self, job: messages.Job) -> LoadedModel:
        """Return the model of a job, loading it unless it is there.

        Raises:
            IncompatibleError: the model here is not the one that the job is of.
            InvalidInputError: there is no such model or engine here.
            EngineError: the infrastructure failed.
        """
        if self._loaded and self._loaded.key == (job.model_digest, job.engine):
            return self._loaded
        revision = job.model.revision if job.model.HasField("revision") else None
        checkpoint = resolve_checkpoint(job.model.name, revision, roots=self._roots)
        if checkpoint.digest != job.model_digest:
            raise IncompatibleError(
                f"{job.model.name} has digest {checkpoint.digest} here, "
                f"the experiment is of {job.model_digest}",
                field="model.name",
                remedy="give evaluators the files that the experiment was made with",
            )
        self.close()
        logger.info("loading a model", extra={"model": job.model.name, "engine": job.engine})
        self._loaded = LoadedModel(checkpoint, job.engine, self._load, self._artifacts)
        return self._loaded

    def close(self) -> None:
        """Free the loaded model."""
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.engine.close()
