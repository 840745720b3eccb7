"""The model that a worker holds: loaded once, kept over jobs and experiments."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, EngineSettings, Numerics, load_engine
from modnorm.errors import IncompatibleError
from modnorm.tasks import Task
from modnorm.tasks.faults import render
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.artifact_cache import KEPT, Artifacts
from services.evaluator.load_lock import turn
from services.evaluator.replay_canary import replay

logger = logging.getLogger(__name__)

Prompts = tuple[Sequence[int], ...]
"""Token ids of each row's prompt."""
_SHARED = 0.5
"""Part of a GPU's memory up to which an engine has others beside it."""
LoadEngine = Callable[[str, Checkpoint, EngineSettings], Engine]
"""Loads a model into an engine by name; `modnorm.engines.load_engine` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a worker loads models."""

    roots: Sequence[Path] | None
    """Directories under which local models must lie; anywhere when None."""
    share: float = EngineSettings().gpu_memory_utilization
    """Part of a GPU's memory that an engine may take."""
    lock: Path | None = None
    """File that workers of one GPU lock in turn while they load."""
    may_make_room: bool = False
    """Whether to end when a model does not fit that part."""
    load: LoadEngine = load_engine
    """Makes engines."""


def engine_settings(job: messages.Job, share: float) -> EngineSettings:
    """Return what the engine of a job is told: by its spec, and by who runs this worker.

    Args:
        job: The job.
        share: Part of a GPU's memory that this worker's engine may take.
    """
    spec, defaults = job.engine, EngineSettings()
    return EngineSettings(
        max_model_len=spec.max_model_len or None,
        gpu_memory_utilization=share,
        tensor_parallel_size=spec.tensor_parallel_size or defaults.tensor_parallel_size,
        max_num_seqs=spec.max_num_seqs or defaults.max_num_seqs,
        numerics=Numerics(spec.numerics or defaults.numerics),
        worker_process=share > _SHARED,
    )


@dataclass(frozen=True, slots=True)
class ModelKey:
    """What two jobs share that the same loaded engine can do."""

    model_digest: str
    engine: str
    settings: EngineSettings


class LoadedModel:
    """An engine, and the prompts that it was asked.

    Args:
        key: What it was loaded for.
        checkpoint: The model on disk.
        engine: What holds it.
        artifacts: Where rows are found.
    """

    def __init__(
        self, key: ModelKey, checkpoint: Checkpoint, engine: Engine, artifacts: Artifacts
    ) -> None:
        self.key = key
        self.engine = engine
        self._prompts: dict[tuple[str, str], Prompts] = {}
        self._replays: dict[tuple[str, str, int], Mapping[str, str]] = {}
        self._encoder = PromptEncoder(checkpoint)
        self._artifacts = artifacts

    def prompts(self, task: Task, rows_digest: str) -> Prompts:
        """Return the prompts of a task's rows, in row order."""
        key = (task.scorer, rows_digest)
        if key not in self._prompts:
            while len(self._prompts) >= KEPT:
                self._prompts.pop(next(iter(self._prompts)))
            rows = self._artifacts.rows(rows_digest)
            self._prompts[key] = tuple(map(self._encoder.encode, render(task, rows, "row")))
        return self._prompts[key]

    def replay(self, task: Task, job: messages.Job, poll: Callable[[], None]) -> Mapping[str, str]:
        """Have the base answer a few selection prompts of a job's experiment, once for each."""
        key = (task.scorer, job.replay_digest, job.max_tokens)
        if key not in self._replays:
            prompts = self.prompts(task, job.replay_digest)
            self._replays[key] = replay(self.engine, prompts, job.max_tokens, poll)
        return self._replays[key]


class Models:
    """The one model that is loaded; another job's model takes its place.

    Args:
        artifacts: Where rows are found.
        loading: How models are loaded.
    """

    def __init__(self, artifacts: Artifacts, loading: Loading) -> None:
        self._artifacts = artifacts
        self._loading = loading
        self._loaded: LoadedModel | None = None

    @property
    def key(self) -> ModelKey | None:
        """What is loaded."""
        return self._loaded.key if self._loaded else None

    def holds(self, job: messages.Job) -> bool:
        """Whether a job needs nothing else than what is loaded."""
        return self.key == self._key_of(job)

    def _key_of(self, job: messages.Job) -> ModelKey:
        return ModelKey(
            job.model_digest, job.engine.name, engine_settings(job, self._loading.share)
        )

    def load(self, job: messages.Job, poll: Callable[[], None]) -> LoadedModel:
        """Return the model of a job, loading it unless it is there.

        Args:
            job: The job.
            poll: Called while another worker of the GPU loads; what it raises ends the wait.

        Raises:
            IncompatibleError: the model here is not the one that the job is of.
            InvalidInputError: there is no such model or engine here.
            PreconditionError: this process cannot load it, a new one may.
            EngineError: the infrastructure failed.
        """
        key = self._key_of(job)
        if self._loaded and self._loaded.key == key:
            return self._loaded
        revision = job.model.revision if job.model.HasField("revision") else None
        checkpoint = resolve_checkpoint(job.model.name, revision, roots=self._loading.roots)
        if checkpoint.digest != job.model_digest:
            raise IncompatibleError(
                f"{job.model.name} has digest {checkpoint.digest} here, "
                f"the experiment is of {job.model_digest}",
                field="model.name",
                remedy="give evaluators the files that the experiment was made with",
            )
        self.close()
        logger.info("loading a model", extra={"model": job.model.name, "engine": job.engine.name})
        with turn(self._loading.lock, poll):
            engine = self._loading.load(job.engine.name, checkpoint, key.settings)
        self._loaded = LoadedModel(key, checkpoint, engine, self._artifacts)
        return self._loaded

    def close(self) -> None:
        """Free the loaded model."""
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.engine.close()
