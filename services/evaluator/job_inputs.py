"""Caches of what jobs name: rows, maps, lineages and generators by digest, and tasks."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from modnorm.baselines.generator import Generator, propose
from modnorm.checkpoint.families import Layout
from modnorm.engines import Engine
from modnorm.errors import (
    EngineError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    UnavailableError,
)
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage, Step, all_float32
from modnorm.sandbox import Isolation, Program, ProgramOutcome, Runner
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.tasks import Task, get_stored_task, paper_tasks
from modnorm.tasks.protocol import Row
from modnorm.tasks.registry import require_sandbox, runs_programs
from modnorm.tasks.row_loading import UnmarkedTask
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_from_proto

KEPT = 8
"""Entries of each cache: an experiment has two sets of rows, and few experiments run at once."""


class ArtifactCache:
    """Artifacts by digest. `rows` and `scale_map` are least-recently-used caches."""

    def __init__(self, client: AggregatorClient) -> None:
        self._client = client
        self._lineages: BoundedDict[str, Lineage] = BoundedDict(KEPT)
        self.rows = lru_cache(maxsize=KEPT)(self._fetch_rows)
        self.scale_map = lru_cache(maxsize=KEPT)(self._fetch_scale_map)
        self._generator = lru_cache(maxsize=1)(self._fetch_generator)

    def reach(
        self, job: messages.Job, engine: Engine, poll: Callable[[], None]
    ) -> tuple[Descriptor, float]:
        """Bring an engine, outside a candidate, to the state of a job's candidate.

        Return the candidate, with its coefficients if a generator proposes them, and the
        normaliser of the proposal, which is 0 without a generator.
        """
        descriptor, normaliser = descriptor_from_proto(job.descriptor), 0.0
        state = descriptor.lineage
        lineage = self._lineage(job.experiment_id, state) if state else None
        engine.rebase(lineage, poll=poll)
        if job.generator_digest and descriptor.coefficients is None and lineage is not None:
            generator = self._generator(job.generator_digest, engine.layout)
            raw, normaliser = propose(generator, engine.moments(), lineage.steps)
            sizes = [descriptor.radius * (normaliser * amplitude) for amplitude in raw]
            descriptor = descriptor.resolved(all_float32(sizes))
        return descriptor, normaliser

    def _lineage(self, experiment_id: str, digest: str) -> Lineage:
        """Return the lineage of a state; only the steps after the cached ones are fetched."""
        cached = self._lineages.get(experiment_id)
        lineage = self._extended(experiment_id, digest, cached)
        if lineage.digest != digest and cached is not None:
            lineage = self._extended(experiment_id, digest, None)
        _check(lineage.digest, digest)
        self._lineages[experiment_id] = lineage
        return lineage

    def _extended(self, experiment_id: str, digest: str, cached: Lineage | None) -> Lineage:
        if cached is not None and digest in cached.digests:
            return cached.until(cached.digests.index(digest))
        after = len(cached.steps) if cached else 0
        origin, steps = self._client.lineage(experiment_id, digest, after)
        start = cached or Lineage.from_json(origin)
        return start.extended(*map(Step.from_json, steps))

    def _fetch(self, digest: str) -> str:
        text = self._client.artifact(digest)
        _check(hashlib.sha256(text.encode()).hexdigest(), digest)
        return text

    def _fetch_rows(self, digest: str) -> tuple[Row, ...]:
        return tuple(json.loads(line) for line in self._fetch(digest).split("\n"))

    def _fetch_scale_map(self, digest: str) -> ScaleMap:
        return ScaleMap.from_json(self._fetch(digest))

    def _fetch_generator(self, digest: str, layout: Layout) -> Generator:
        return Generator.from_json(self._fetch(digest), layout)


def _check(actual: str, digest: str) -> None:
    if actual != digest:
        raise UnavailableError(f"the aggregator sent digest {actual} for digest {digest}")


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
