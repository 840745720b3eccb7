"""What jobs refer to by digest: rows and scale maps, fetched once and checked."""

import hashlib
import json
from functools import lru_cache

from modnorm.errors import UnavailableError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.lineage import Lineage, Step
from modnorm.tasks.protocol import Row
from services.evaluator.aggregator_client import AggregatorClient

KEPT = 8
"""Row sets and scale maps kept: two row sets an experiment, a few experiments at a time."""


class Artifacts:
    """Rows and scale maps by digest, the least recently used dropped first.

    Args:
        gateway: Where they are fetched.
    """

    def __init__(self, gateway: AggregatorClient) -> None:
        self._gateway = gateway
        self._lineages: dict[str, Lineage] = {}
        self.rows = lru_cache(maxsize=KEPT)(self._fetch_rows)
        self.scale_map = lru_cache(maxsize=KEPT)(self._fetch_scale_map)

    def generator(self, digest: str) -> str:
        """Return the JSON of a generator."""
        text = self._gateway.generator(digest)
        _check(hashlib.sha256(text.encode()).hexdigest(), digest)
        return text

    def lineage(self, experiment_id: str, digest: str) -> Lineage:
        """Return the lineage of a state; steps that came before are not fetched again."""
        known = self._lineages.pop(experiment_id, None)
        found = self._extended(experiment_id, digest, known)
        if found.digest != digest and known is not None:
            found = self._extended(experiment_id, digest, None)
        _check(found.digest, digest)
        while len(self._lineages) >= KEPT:
            self._lineages.pop(next(iter(self._lineages)))
        self._lineages[experiment_id] = found
        return found

    def _extended(self, experiment_id: str, digest: str, known: Lineage | None) -> Lineage:
        if known is not None and digest in known.digests:
            return known.until(known.digests.index(digest))
        after = len(known.steps) if known else 0
        origin, steps = self._gateway.lineage(experiment_id, digest, after)
        start = known or Lineage.from_json(origin)
        return start.extended(*map(Step.from_json, steps))

    def _fetch_rows(self, digest: str) -> tuple[Row, ...]:
        """Return the rows of a digest, in order."""
        texts = self._gateway.rows(digest)
        _check(hashlib.sha256("\n".join(texts).encode()).hexdigest(), digest)
        return tuple(json.loads(text) for text in texts)

    def _fetch_scale_map(self, digest: str) -> ScaleMap:
        """Return the scale map of a digest."""
        scale_map = ScaleMap.from_json(self._gateway.scale_map(digest))
        _check(scale_map.digest, digest)
        return scale_map


def _check(actual: str, digest: str) -> None:
    if actual != digest:
        raise UnavailableError(f"what came for digest {digest} has digest {actual}")
