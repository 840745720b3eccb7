"""The trained states that jobs are about, and what a prepared generator proposes in them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from modnorm.baselines.generator import Generator, propose
from modnorm.engines import Engine
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import all_float32
from modnorm.search.scoring import CandidateResult
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_from_proto
from services.evaluator.artifact_cache import Artifacts


@dataclass(frozen=True, slots=True)
class Reached:
    """The candidate of a job, and what it took to come to where it is drawn around."""

    descriptor: Descriptor
    """Its coefficients are resolved where a generator proposes them."""
    normaliser: float
    """Of what a generator proposed; 0 where it proposed nothing."""
    seconds: float

    def charge(self, result: CandidateResult) -> CandidateResult:
        """Count the way among the seconds that switching took."""
        return replace(result, switch_seconds=result.switch_seconds + self.seconds)


class States:
    """Brings engines to states, and resolves what only a state can tell.

    Args:
        artifacts: Where lineages and generators are found.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._generators: dict[str, Generator] = {}

    def reach(self, job: messages.Job, engine: Engine, poll: Callable[[], None]) -> Reached:
        """Bring an engine to the state that the candidate of a job is drawn around.

        Args:
            job: The job.
            engine: Holds any state outside a candidate.
            poll: Called on the way, which is long where a run has many steps; what it raises ends
                it.
        """
        started = time.perf_counter()
        descriptor, normaliser = self._reach(job, engine, poll)
        return Reached(descriptor, normaliser, time.perf_counter() - started)

    def _reach(
        self, job: messages.Job, engine: Engine, poll: Callable[[], None]
    ) -> tuple[Descriptor, float]:
        descriptor = descriptor_from_proto(job.descriptor)
        state = descriptor.lineage
        lineage = self._artifacts.lineage(job.experiment_id, state) if state else None
        engine.rebase(lineage, poll=poll)
        if not job.generator_digest or descriptor.coefficients is not None or lineage is None:
            return descriptor, 0.0
        generator = self._generator(job.generator_digest, engine)
        raw, scale = propose(generator, engine.moments(), lineage.steps)
        sizes = all_float32([descriptor.radius * (scale * amplitude) for amplitude in raw])
        return descriptor.resolved(sizes), scale

    def _generator(self, digest: str, engine: Engine) -> Generator:
        if digest not in self._generators:
            text = self._artifacts.generator(digest)
            self._generators = {digest: Generator.from_json(text, engine.layout)}
        return self._generators[digest]
