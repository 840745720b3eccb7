"""The model that a worker holds: loaded once, kept over jobs and experiments."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, load_engine
from modnorm.errors import IncompatibleError
from modnorm.tasks import get_task
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.artifacts import KEPT, Artifacts

logger = logging.getLogger(__name__)

Prompts = tuple[Sequence[int], ...]
"""Token ids of each row's prompt."""


class LoadedModel:
    """An engine, and the prompts that it was asked.

    Args:
        checkpoint: The model on disk.
        engine: Engine by name.
        artifacts: Where rows are found.
    """

    def __init__(self, checkpoint: Checkpoint, engine: str, artifacts: Artifacts) -> None:
        self.key = (checkpoint.digest, engine)
        self.engine: Engine = load_engine(engine, checkpoint)
        self.prompts = lru_cache(maxsize=KEPT)(self._encode)
        self._encoder = PromptEncoder(checkpoint)
        self._artifacts = artifacts

    def _encode(self, task: str, rows_digest: str) -> Prompts:
        """Return the prompts of a task's rows, in row order."""
        messages_of = get_task(task).messages
        rows = self._artifacts.rows(rows_digest)
        return tuple(self._encoder.encode(messages_of(row)) for row in rows)


class Models:
    """The one model that is loaded; another job's model takes its place.

    Args:
        artifacts: Where rows are found.
        roots: Directories under which local models must lie; anywhere when None.
    """

    def __init__(self, artifacts: Artifacts, roots: Sequence[Path] | None) -> None:
        self._artifacts = artifacts
        self._roots = roots
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
        self._loaded = LoadedModel(checkpoint, job.engine, self._artifacts)
        return self._loaded

    def close(self) -> None:
        """Free the loaded model."""
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.engine.close()
