"""Cache of rows, scale maps, lineages and generators, fetched and checked by digest."""

import hashlib
import json
from functools import lru_cache

from modnorm.errors import UnavailableError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.lineage import Lineage, Step
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.tasks.protocol import Row

KEPT = 8
"""Entries of each cache: an experiment has two sets of rows, and few experiments run at once."""


class ArtifactCache:
    """Artifacts by digest. `rows` and `scale_map` are least-recently-used caches."""

    def __init__(self, client: AggregatorClient) -> None:
        self.client = client
        self._lineages: BoundedDict[str, Lineage] = BoundedDict(KEPT)
        self.rows = lru_cache(maxsize=KEPT)(self._fetch_rows)
        self.scale_map = lru_cache(maxsize=KEPT)(self._fetch_scale_map)

    def generator(self, digest: str) -> str:
        text = self.client.generator(digest)
        _check(hashlib.sha256(text.encode()).hexdigest(), digest)
        return text

    def lineage(self, experiment_id: str, digest: str) -> Lineage:
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
        origin, steps = self.client.lineage(experiment_id, digest, after)
        start = cached or Lineage.from_json(origin)
        return start.extended(*map(Step.from_json, steps))

    def _fetch_rows(self, digest: str) -> tuple[Row, ...]:
        """Return the rows of a digest, in order."""
        texts = self.client.rows(digest)
        _check(hashlib.sha256("\n".join(texts).encode()).hexdigest(), digest)
        return tuple(json.loads(text) for text in texts)

    def _fetch_scale_map(self, digest: str) -> ScaleMap:
        scale_map = ScaleMap.from_json(self.client.scale_map(digest))
        _check(scale_map.digest, digest)
        return scale_map


def _check(actual: str, digest: str) -> None:
    if actual != digest:
        raise UnavailableError(f"the aggregator sent digest {actual} for digest {digest}")
