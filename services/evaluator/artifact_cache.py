"""Cache of rows, scale maps, lineages and generators, fetched and checked by digest."""

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache

from modnorm.baselines.generator import Generator, propose
from modnorm.checkpoint.families import Layout
from modnorm.engines import Engine
from modnorm.errors import UnavailableError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage, Step, all_float32
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.tasks.protocol import Row
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

    def _fetch_rows(self, digest: str) -> tuple[Row, ...]:
        texts = self._client.rows(digest)
        _check(hashlib.sha256("\n".join(texts).encode()).hexdigest(), digest)
        return tuple(json.loads(text) for text in texts)

    def _fetch_scale_map(self, digest: str) -> ScaleMap:
        scale_map = ScaleMap.from_json(self._client.scale_map(digest))
        _check(scale_map.digest, digest)
        return scale_map

    def _fetch_generator(self, digest: str, layout: Layout) -> Generator:
        text = self._client.generator(digest)
        _check(hashlib.sha256(text.encode()).hexdigest(), digest)
        return Generator.from_json(text, layout)


def _check(actual: str, digest: str) -> None:
    if actual != digest:
        raise UnavailableError(f"the aggregator sent digest {actual} for digest {digest}")
