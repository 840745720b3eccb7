"""The interface between pages and stored runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from modnorm.analysis.answers import AnswerFilter, AnswerRecord
from modnorm.analysis.comparison import ComparisonRow
from modnorm.analysis.document import ResultsDocument
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.web.population import CandidatePage, CandidateQuery


class Run(Protocol):
    """A run, finished or not. All but `name`, `finished` and `spec` need a finished one."""

    @property
    def name(self) -> str:
        """Name in addresses: unique in its catalog."""

    @property
    def finished(self) -> bool:
        """Whether it has results."""

    @property
    def spec(self) -> Mapping[str, object]:
        """The spec as JSON values."""

    @property
    def document(self) -> ResultsDocument:
        """The results."""

    def rewards(self) -> list[float]:
        """Return all complete selection rewards, in candidate order."""

    def candidates(self, query: CandidateQuery) -> CandidatePage:
        """Return one page of candidates."""

    def answers(self, wanted: AnswerFilter) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row."""

    def answers_of(self, candidates: Sequence[int], row: int) -> Mapping[int, AnswerRecord]:
        """Return the answers of some candidates to one held-out row, by candidate."""

    def votes(self, wanted: VoteFilter) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""


class Catalog(Protocol):
    """The runs that a page shows."""

    def runs(self) -> Sequence[Run]:
        """Return all runs, in the order of the list."""

    def compare(self, runs: Sequence[Run]) -> list[ComparisonRow]:
        """Set finished runs side by side; see `modnorm.analysis.comparison.compare_runs`."""
