"""What jobs refer to by digest: rows and scale maps, fetched once and checked."""

import hashlib
import json
from functools import lru_cache

from modnorm.errors import UnavailableError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.tasks.protocol import Row
from services.evaluator.gateway import JobGateway

KEPT = 8
"""Row sets and scale maps kept: two row sets an experiment, a few experiments at a time."""


class Artifacts:
    """Rows and scale maps by digest, the least recently used dropped first.

    Args:
        gateway: Where they are fetched.
    """

    def __init__(self, gateway: JobGateway) -> None:
        self._gateway = gateway
        self.rows = lru_cache(maxsize=KEPT)(self._fetch_rows)
        self.scale_map = lru_cache(maxsize=KEPT)(self._fetch_scale_map)

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
