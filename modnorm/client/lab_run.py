"""A finished experiment, read from the lab that ran it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain

from modnorm.analysis.answers import (
    ALL,
    BASE_INDEX,
    SPLITS,
    AnswerFilter,
    AnswerRecord,
    require_split,
)
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow, VoteRow
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord, vote_records
from modnorm.analysis.wanted import require_candidate
from modnorm.arguments import require_type
from modnorm.client.calls import get_artifact, list_answers, list_candidates, list_votes
from modnorm.client.connection import Connection
from modnorm.client.finished import check_succeeded
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.search.voting import Ballot
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Task, get_stored_task
from modnorm.tasks.row_loading import ReadableRow, readable_rows
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import (
    answer_from_proto,
    descriptor_from_proto,
    spec_from_proto,
)
from modnorm.wire.run_messages import base_row, candidate_row, ensemble_row, provenance, vote_row

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


class LabRun:
    """A finished experiment of a lab; see `modnorm.analysis.finished_run.FinishedRun`.

    Raises:
        PreconditionError: it has not succeeded.
    """

    def __init__(self, client: Connection, experiment: experiments.Experiment) -> None:
        check_succeeded(experiment)
        self.id = experiment.id
        self.experiment = experiment
        self._client = client
        self._rows: dict[str, tuple[str, ...]] = {}
        self._questions: dict[str, tuple[ReadableRow, ...]] = {}

    @cached_property
    def messages(self) -> Sequence[experiments.Candidate]:
        """The candidates as the lab sends them, the base first."""
        return tuple(self._client.pages(partial(list_candidates, self.id)))

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return spec_from_proto(self.experiment.spec)

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

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON; none if the run has no development rows.

        Raises:
            InvalidInputError: there is no split of this name.
        """
        require_split(split)
        if split not in self._rows:
            is_absent = split == "development" and not self.provenance["development_digest"]
            text = "" if is_absent else self._artifact(_ROWS[split])
            self._rows[split] = tuple(text.split("\n")) if text else ()
        return self._rows[split]

    def answers(self, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
        """Return answers by candidate, then split, then row; one page is fetched at a time."""
        require_type(wanted, AnswerFilter, "wanted")
        sheets = map(self._sheet, self._sheets(wanted))
        return filter(wanted.wants, chain.from_iterable(sheets))

    def votes(self, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
        """Return votes by N, then K, then row."""
        require_type(wanted, VoteFilter, "wanted")
        return self._vote_records(wanted)

    def _vote_records(self, wanted: VoteFilter) -> Iterator[VoteRecord]:
        ensembles = list(filter(wanted.wants_ensemble, self.ensembles))
        experts = {expert for ensemble in ensembles for expert in ensemble.experts}
        ballots = {expert: self._ballot(expert) for expert in sorted(experts)}
        golds = [question.gold for question in self._questions_of("heldout")]
        for ensemble in ensembles:
            votes = self.plain_votes(ensemble)
            chosen = [vote for vote in votes if wanted.row in {None, vote.row}]
            yield from vote_records(ensemble, chosen, ballots, golds)

    def plain_votes(self, ensemble: EnsembleRow) -> Sequence[VoteRow]:
        """Return the outcomes of an ensemble's votes in row order."""
        page = partial(list_votes, self.id, ensemble.population, ensemble.ensemble_size)
        return tuple(map(vote_row, self._client.pages(page)))

    def descriptors(self, candidate: int | None = None) -> Iterator[tuple[int, Descriptor]]:
        """Return index and resolved descriptor of each candidate, the base first, or of one."""
        require_candidate(candidate, self.candidates, self.spec)
        chosen = (each for each in self.messages if candidate in {None, each.index})
        return ((each.index, descriptor_from_proto(each.descriptor)) for each in chosen)

    def scale_map(self) -> ScaleMap | None:
        """Return the scale map that the candidates were drawn with."""
        if not self.provenance["scale_map_digest"]:
            return None
        return ScaleMap.from_json(self._artifact(experiments.ARTIFACT_KIND_SCALE_MAP))

    def profile(self) -> str | None:
        """Return the profile as JSON; None if the method uses none."""
        if not self.provenance["profile_digest"]:
            return None
        return self._artifact(experiments.ARTIFACT_KIND_PROFILE)

    def lineage(self) -> Lineage | None:
        """Return the lineage of the state that is reported; None unless a model was trained."""
        if not self.experiment.states:
            return None
        return Lineage.from_json(self._artifact(experiments.ARTIFACT_KIND_LINEAGE))

    def _artifact(self, kind: "experiments.ArtifactKind.ValueType") -> str:
        return self._client.read(get_artifact(self.id, kind)).decode()

    def _sheets(self, wanted: AnswerFilter) -> Sequence[tuple[int, str]]:
        """Return the candidates and splits of wanted stored answers, in the order of files."""
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

    def _sheet(self, sheet: tuple[int, str]) -> Iterator[AnswerRecord]:
        candidate, split = sheet
        questions = self._questions_of(split)
        page = partial(list_answers, self.id, candidate, _SPLITS[split])
        for answer in self._client.pages(page):
            yield AnswerRecord.of(*sheet, questions[answer.row], answer_from_proto(answer))

    def _ballot(self, expert: int) -> Ballot:
        answers = {answer.row: answer for answer in self._sheet((expert, "heldout"))}
        return Ballot.from_partial_answers(answers, len(self._questions_of("heldout")))

    def _questions_of(self, split: str) -> tuple[ReadableRow, ...]:
        if split not in self._questions:
            self._questions[split] = readable_rows(self.task, self.rows(split))
        return self._questions[split]

    @cached_property
    def task(self) -> Task | None:
        """The task with its default scorer; None where it is not installed here."""
        named = self.spec.task
        try:
            return get_stored_task(named.name, declaration=named.declaration)
        except InvalidInputError:
            return None
