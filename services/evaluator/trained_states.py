"""The trained state that a candidate perturbs, and the candidate's coefficients there."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from modnorm.baselines.generator import Generator, propose
from modnorm.engines import Engine
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import all_float32
from modnorm.services.evaluator.artifact_cache import ArtifactCache
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_from_proto


@dataclass(frozen=True, slots=True)
class ReachedState:
    """The candidate of a job whose engine has reached the candidate's state."""

    descriptor: Descriptor
    """The candidate, with its coefficients if a generator proposes them."""
    normaliser: float
    """Normaliser of the generator's proposal; 0 without a generator."""
    seconds: float
    """Seconds that it took to reach the state."""


class TrainedStates:
    """Brings engines to trained states."""

    def __init__(self, artifacts: ArtifactCache) -> None:
        self._artifacts = artifacts
        self._generators: dict[str, Generator] = {}

    def reach(self, job: messages.Job, engine: Engine, poll: Callable[[], None]) -> ReachedState:
        """Bring an engine to the state of a job's candidate."""
        started = time.perf_counter()
        descriptor, normaliser = descriptor_from_proto(job.descriptor), 0.0
        state = descriptor.lineage
        lineage = self._artifacts.lineage(job.experiment_id, state) if state else None
        engine.rebase(lineage, poll=poll)
        if job.generator_digest and descriptor.coefficients is None and lineage is not None:
            generator = self._generator(job.generator_digest, engine)
            raw, normaliser = propose(generator, engine.moments(), lineage.steps)
            sizes = [descriptor.radius * (normaliser * amplitude) for amplitude in raw]
            descriptor = descriptor.resolved(all_float32(sizes))
        return ReachedState(descriptor, normaliser, time.perf_counter() - started)

    def _generator(self, digest: str, engine: Engine) -> Generator:
        if digest not in self._generators:
            text = self._artifacts.generator(digest)
            self._generators = {digest: Generator.from_json(text, engine.layout)}
        return self._generators[digest]
