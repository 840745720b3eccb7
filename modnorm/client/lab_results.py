"""A finished experiment of a lab, before its answers and votes are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

from modnorm.analysis.answers import BASE_INDEX, SPLITS, AnswerFilter, AnswerRecord
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow
from modnorm.arguments import require_type
from modnorm.client.calls import Call, Page, get_artifact, list_answers
from modnorm.client.finished import check_is_search, check_succeeded
from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Task, get_stored_task
from modnorm.tasks.readable_rows import ReadableRow, readable_rows
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import answer_from_proto, stored_spec_from_proto
from modnorm.wire.run_messages import base_row, candidate_row, ensemble_row, provenance

_SPLITS = {
    "selection": evaluation.SPLIT_SELECTION,
    "heldout": evaluation.SPLIT_HELDOUT,
    "development": evaluation.SPLIT_DEVELOPMENT,
}
_ROWS = {
    "selection": experiments.ARTIFACT_KIND_SELECTION_ROWS,
    "heldout": experiments.ARTIFACT_KIND_HELDOUT_ROWS,
    "development": experiments.ARTIFACT_KIND_DEVELOPMENT_ROWS,
}


class LabResults(ABC):
    """A finished experiment of a lab, without its answers and votes.

    Raises:
        PreconditionError: it has not succeeded.
    """

    def __init__(self, experiment: experiments.Experiment) -> None:
        check_succeeded(experiment)
        check_is_search(experiment)
        self.id = experiment.id
        self.experiment = experiment

    @property
    @abstractmethod
    def messages(self) -> Sequence[experiments.Candidate]:
        """The candidates as the lab sends them, the base first."""

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return stored_spec_from_proto(self.experiment.spec)

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """Digests and names of all inputs of the results."""
        return provenance(self.experiment)

    @cached_property
    def base(self) -> BaseRow:
        """The unperturbed model."""
        return base_row(self.experiment.base, self.messages)

    @cached_property
    def candidates(self) -> Sequence[CandidateRow]:
        """The population in candidate order, without the base."""
        return tuple(candidate_row(each) for each in self.messages if each.index != BASE_INDEX)

    @cached_property
    def ensembles(self) -> Sequence[EnsembleRow]:
        """The ensembles, by N, then by K."""
        rows = map(ensemble_row, self.experiment.ensembles)
        return tuple(sorted(rows, key=lambda row: (row.population, row.ensemble_size)))

    def rows_call(self, split: str) -> Call[bytes] | None:
        """Return the call that reads the rows of a split; None where the run has no such split."""
        if split == "development" and not self.provenance["development_digest"]:
            return None
        return get_artifact(self.id, _ROWS[split])

    def questions(self, rows: Iterable[str]) -> tuple[ReadableRow, ...]:
        """Return the readable parts of rows, each of which is JSON."""
        return readable_rows(self.task, rows)

    def sheets(self, wanted: AnswerFilter) -> Sequence[tuple[int, str]]:
        """Return the candidates and splits of wanted stored answers, in the order of files."""
        require_type(wanted, AnswerFilter, "wanted")
        counts = {
            (message.index, split): count
            for message in self.messages
            for split, count in (
                ("selection", message.selection_answers),
                ("heldout", message.heldout_answers),
            )
        }
        for state in self.experiment.states:
            counts[BASE_INDEX - state.updates, "heldout"] = state.heldout_answers
            counts[BASE_INDEX - state.updates, "development"] = state.development_answers
        stored = [sheet for sheet, count in counts.items() if count and wanted.wants_sheet(*sheet)]
        return sorted(stored, key=lambda sheet: (sheet[0], SPLITS.index(sheet[1])))

    def sheet_pages(
        self, candidate: int, split: str
    ) -> Callable[[str], Call[Page[evaluation.Answer]]]:
        """Return the calls that page through the answers of a candidate on a split."""
        return partial(list_answers, self.id, candidate, _SPLITS[split])

    @cached_property
    def task(self) -> Task | None:
        """The task with its default scorer; None where it is not installed here."""
        named = self.spec.task
        try:
            return get_stored_task(named.name, declaration=named.declaration)
        except InvalidInputError:
            return None


def answer_record(
    sheet: tuple[int, str], answer: evaluation.Answer, questions: Sequence[ReadableRow]
) -> AnswerRecord:
    """Return an answer with its question."""
    return AnswerRecord.of(*sheet, questions[answer.row], answer_from_proto(answer))


def split_rows(text: bytes) -> tuple[str, ...]:
    """Return the rows of an artifact, each as JSON."""
    return tuple(text.decode().split("\n")) if text else ()
