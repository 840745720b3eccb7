"""Cache of the one loaded model, kept between jobs and experiments."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import (
    Drafts,
    Engine,
    EngineSettings,
    GenerationLimits,
    Numerics,
    import_engine,
    is_vllm,
    load_engine,
)
from modnorm.engines.settings import STAGE
from modnorm.errors import CandidateError, IncompatibleError, ModnormError
from modnorm.locks import locked
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.common.model_resolution import resolve_model
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.job_inputs import KEPT, ArtifactCache
from modnorm.tasks import Task
from modnorm.tasks.task_errors import render_prompts
from modnorm.v1 import evaluation_pb2 as messages

logger = logging.getLogger(__name__)

Prompts = tuple[Sequence[int], ...]
"""Token ids of each row's prompt."""
_SHARED = 0.5
"""Part of a GPU's memory up to which engines share the GPU."""
_AUTO = "auto"


def engine_settings(job: messages.Job, share: float) -> EngineSettings:
    """Return the settings of a job's engine, which takes a share of a GPU's memory."""
    spec, defaults = job.engine, EngineSettings()
    numerics = Numerics(spec.numerics or defaults.numerics)
    return EngineSettings(
        max_model_len=spec.max_model_len or None,
        gpu_memory_utilization=share,
        tensor_parallel_size=spec.tensor_parallel_size or defaults.tensor_parallel_size,
        max_num_seqs=spec.max_num_seqs or None,
        numerics=numerics,
        drafts=_drafts(job, numerics),
        worker_process=share > _SHARED,
    )


def _drafts(job: messages.Job, numerics: Numerics) -> Drafts:
    if (asked := job.engine.drafts or _AUTO) != _AUTO:
        return Drafts(asked)
    usable = numerics is Numerics.FAST and is_vllm(job.engine.name)
    return Drafts.POPULATION if usable else Drafts.NONE


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Identity of a loaded engine: jobs with equal keys can use it."""

    model_digest: str
    engine: str
    settings: EngineSettings


class LoadedModel:
    """An engine, and the prompts of its jobs."""

    def __init__(
        self, key: ModelKey, encoder: PromptEncoder, engine: Engine, artifacts: ArtifactCache
    ) -> None:
        self.key = key
        self.engine = engine
        self._encoder = encoder
        self._artifacts = artifacts
        self._prompts: BoundedDict[tuple[str, str], Prompts] = BoundedDict(KEPT)
        self._replays: BoundedDict[str, str] = BoundedDict(KEPT)

    def prompts(self, task: Task, rows_digest: str) -> Prompts:
        """Return the prompts of a task's rows, in row order."""

        def load() -> Prompts:
            rows = self._artifacts.rows(rows_digest)
            return tuple(map(self._encoder.encode, render_prompts(task, rows, "row")))

        return self._prompts.find((task.scorer, rows_digest), load)

    def replay(self, task: Task, job: messages.Job, poll: Callable[[], None]) -> Mapping[str, str]:
        """Return digests of the base model's answers to a few selection prompts, and of these.

        Every report contains them. Prompts are answered once: later, drafts may round differently.
        """
        prompts = self.prompts(task, job.replay_digest)[:PROMPTS]
        limits = GenerationLimits(min(job.max_tokens, TOKENS))
        request = [self.engine.model_digest, [list(each) for each in prompts], limits.max_tokens]
        name = _digest(request)
        canary = self._replays.find(name, lambda: replay(self.engine, prompts, limits, poll))
        return {"canary": canary, "canary_of": name}


class ModelCache:
    """The one loaded model; a job of another model replaces it."""

    def __init__(
        self, artifacts: ArtifactCache, settings: EvaluatorSettings, on_load: Callable[[], object]
    ) -> None:
        self._artifacts = artifacts
        self._settings = settings
        self._on_load = on_load
        self._loaded: LoadedModel | None = None

    @property
    def key(self) -> ModelKey | None:
        return self._loaded.key if self._loaded else None

    def load(self, job: messages.Job, poll: Callable[[], None]) -> LoadedModel:
        settings = engine_settings(job, self._settings.gpu_memory_utilization)
        key = ModelKey(job.model_digest, job.engine.name, settings)
        if self._loaded and self._loaded.key == key:
            return self._loaded
        checkpoint = resolve_model(job.model, self._settings.model_roots, on_bytes=poll)
        names = {"model": job.model.name, "engine": job.engine.name}
        with STAGE.starting():
            if self._loaded is None:
                # Digesting gigabytes and importing take seconds each.
                with ThreadPoolExecutor(1, "digest") as reader:
                    reader.submit(attrgetter("digest"), checkpoint)
                    STAGE.enter("importing its library")
                    import_engine(job.engine.name, key.settings)
            _require_digest(checkpoint, job)
            encoder = PromptEncoder(checkpoint)  # before an engine, which its failure would leak
            engine = self._replace_model(key, checkpoint)
            if engine is not None:
                logger.info("replaced the model of the engine", extra=names)
            else:
                self.close()
                logger.info("loading a model", extra=names)
                STAGE.enter("waiting for other engines that start")
                lock = self._settings.load_lock  # vLLM does not guard its folder of kernels
                with locked(lock, poll) if lock else nullcontext():
                    STAGE.enter("loading the weights")
                    self._on_load()
                    engine = self._load_engine(job, checkpoint, key.settings)
        self._loaded = LoadedModel(key, encoder, engine, self._artifacts)
        return self._loaded

    def _load_engine(
        self, job: messages.Job, checkpoint: Checkpoint, settings: EngineSettings
    ) -> Engine:
        name = job.engine.name
        try:
            return load_engine(name, checkpoint, settings)
        except IncompatibleError as error:
            if settings.drafts is Drafts.NONE or job.engine.drafts == Drafts.POPULATION:
                raise
            logger.warning("the engine starts without drafts: %s", error)
            return load_engine(name, checkpoint, replace(settings, drafts=Drafts.NONE))

    def _replace_model(self, key: ModelKey, checkpoint: Checkpoint) -> Engine | None:
        """Return the loaded engine with the weights of another model; None to load a new one."""
        loaded = self._loaded
        if loaded is None or replace(loaded.key, model_digest=key.model_digest) != key:
            return None
        try:
            loaded.engine.replace_model(checkpoint)
        except IncompatibleError:
            return None
        except ModnormError as error:
            logger.warning("the engine is loaded again: %s", error)
            return None
        self._loaded = None
        return loaded.engine

    def close(self) -> None:
        """Free the loaded model."""
        loaded, self._loaded = self._loaded, None
        if loaded:
            loaded.engine.close()


def _require_digest(checkpoint: Checkpoint, job: messages.Job) -> None:
    if checkpoint.digest != job.model_digest:
        raise IncompatibleError(
            f"{job.model.name} has digest {checkpoint.digest} on this evaluator, "
            f"but {job.model_digest} in the experiment",
            field="model.name",
            remedy="give evaluators the model files that the experiment was submitted with",
        )


PROMPTS = 4
TOKENS = 32
"""Cap of a replayed answer; the replay costs a fraction of a candidate per experiment."""
_BROKEN = "not finite"


def replay(
    engine: Engine, prompts: Prompts, limits: GenerationLimits, poll: Callable[[], None]
) -> str:
    """Return a digest of the base model's answers."""
    engine.rebase(None)
    try:
        with closing(engine.generate(prompts, limits, poll=poll)) as completions:
            return _digest(sorted((one.index, one.text, one.tokens) for one in completions))
    except CandidateError as error:
        logger.warning("the base model fails: %s", error)
        return _BROKEN


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
