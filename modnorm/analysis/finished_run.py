"""The interface of a finished run, in a directory or in a lab."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from modnorm.analysis.answers import ALL, AnswerFilter, AnswerRecord
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.spec import ExperimentSpec


class FinishedRun(Protocol):
    """A finished run: `SavedRun` reads a directory, `modnorm.client.lab_run.LabRun` a lab."""

    @property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""

    @property
    def provenance(self) -> Mapping[str, object]:
        """Digests and names of all inputs of the results."""

    @property
    def base(self) -> BaseRow:
        """The unperturbed model."""

    @property
    def candidates(self) -> Sequence[CandidateRow]:
        """The population in candidate order, without the base."""

    @property
    def ensembles(self) -> Sequence[EnsembleRow]:
        """The ensembles, by N, then by K."""

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON in the task's schema."""

    def answers(self, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row; they are not all in memory at once."""

    def votes(self, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""

    def descriptors(self, candidate: int | None = None) -> Iterator[tuple[int, Descriptor]]:
        """Yield index and resolved descriptor of each candidate, the base first, or of one."""

    def scale_map(self) -> ScaleMap | None:
        """Return the scale map that the candidates were drawn with."""

    def profile(self) -> str | None:
        """Return the profile as JSON; None if the method uses none."""

    def lineage(self) -> Lineage | None:
        """Return the lineage of the state that is reported; None unless a model was trained."""
