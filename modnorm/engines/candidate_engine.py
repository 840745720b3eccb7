"""The part that all engines share: they hold the base or one candidate."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import engine_failures
from modnorm.errors import EngineError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import NO_LINEAGE, Lineage

if TYPE_CHECKING:
    from modnorm.engines.vllm.rank_group import RankGroup
    from modnorm.perturbation.candidate_weights import CandidateWeights


class CandidateEngine(ABC):
    """An engine's weights, which become a candidate and the base again; see `Engine`."""

    _checkpoint: Checkpoint
    _weights: "CandidateWeights | RankGroup"

    def __init__(self) -> None:
        self._candidate: Descriptor | None = None
        self._is_restored = True
        """Whether the weights are the base outside of a candidate."""

    @property
    def model_digest(self) -> str:
        return self._checkpoint.digest

    @property
    @abstractmethod
    def _is_answering(self) -> bool:
        """Whether a request runs."""

    def rebase(self, lineage: Lineage | None, *, poll: Callable[[], None] | None = None) -> None:
        changes = (lineage.digest if lineage else NO_LINEAGE) != self._weights.state
        if self._candidate or (changes and self._is_answering):
            raise PreconditionError("the engine holds a candidate or a request")
        self._require_restored()
        with engine_failures("applying a lineage"):
            self._weights.rebase(lineage, poll=poll)

    def moments(self) -> Sequence[tuple[float, float]]:
        with engine_failures("reading the weights"):
            return self._weights.moments()

    def weights_sha256(self) -> str:
        with engine_failures("reading the weights"):
            return self._weights.sha256()

    @contextmanager
    def candidate(self, descriptor: Descriptor, scale_map: ScaleMap) -> Iterator[Descriptor]:
        resolved = self._write_candidate(descriptor, scale_map)
        try:
            yield resolved
        finally:
            self._restore_base()

    def _write_candidate(self, descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
        if self._candidate:
            raise PreconditionError("the engine already holds a candidate")
        self._require_base()
        try:
            with engine_failures("writing the candidate's weights"):
                resolved = self._weights.apply(descriptor, scale_map)
        except BaseException:
            self._restore_base()
            raise
        self._candidate = resolved
        return resolved

    def _restore_base(self) -> None:
        self._candidate, self._is_restored = None, False
        with engine_failures("restoring the weights"):
            self._weights.restore()
        self._is_restored = True

    def _require_unused(self) -> None:
        """Refuse to replace the model of a candidate or a request."""
        if self._candidate or self._is_answering:
            raise PreconditionError("the engine holds a candidate or a request")

    def _require_base(self) -> None:
        """Compare weights and pristine copy bit for bit, before a candidate is written."""
        self._require_restored()
        with engine_failures("comparing the weights with the base"):
            pristine = self._weights.is_pristine()
        if not pristine:
            raise _not_the_base("something else wrote to them")

    def _require_restored(self) -> None:
        if not self._is_restored:
            raise _not_the_base("a restore has failed")


def _not_the_base(cause: str) -> EngineError:
    """Return the error of an engine whose weights are neither base nor candidate.

    It is unknown which of its copies is right, so the weights are not repaired.
    """
    return EngineError(
        f"the weights are not the base any more: {cause}", remedy="load the model again"
    )
