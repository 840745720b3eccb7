"""A finished experiment, read from the lab that ran it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from modnorm.analysis.answers import ALL, BASE, SPLITS, AnswerFilter, AnswerRecord
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow, VoteRow
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord, vote_records
from modnorm.client.calls import LabCalls
from modnorm.client.finished import check_succeeded
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.search.voting import Ballot
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Task, get_stored_task
from modnorm.tasks.readable_rows import ReadableRow, readable_rows
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import descriptor_from_proto, spec_from_proto
from modnorm.wire.run_messages import (
    base_row,
    candidate_row,
    ensemble_row,
    provenance,
    vote_row,
)

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

    Args:
        client: Connection to the lab.
        experiment: The experiment as `get` returns it.

    Raises:
        PreconditionError: it has not succeeded.
    """

    def __init__(self, client: LabCalls, experiment: experiments.Experiment) -> None:
        check_succeeded(experiment)
        self.id = experiment.id
        self.experiment = experiment
        self._client = client
        self._rows: dict[str, tuple[str, ...]] = {}
        self._questions: dict[str, tuple[ReadableRow, ...]] = {}

    @cached_property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return spec_from_proto(self.experiment.spec)

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """Digests and names of what the results depend on."""
        return provenance(self.experiment)

    @cached_property
    def base(self) -> BaseRow:
        """The unperturbed model."""
        return base_row(self.experiment.base, self.messages)

    @cached_property
    def candidates(self) -> Sequence[CandidateRow]:
        """The population in candidate order, without the base."""
        return tuple(candidate_row(each) for each in self.messages if each.index != BASE)

    @cached_property
    def ensembles(self) -> Sequence[EnsembleRow]:
        """The ensembles, by N, then by K."""
        rows = map(ensemble_row, self.experiment.ensembles)
        return tuple(sorted(rows, key=lambda row: (row.population, row.ensemble_size)))

    @cached_property
    def messages(self) -> Sequence[experiments.Candidate]:
        """The candidates as the lab sends them, the base first."""
        return tuple(self._client.candidates(self.id))

    @cached_property
    def _task(self) -> Task | None:
        named = self.spec.task
        try:
            return get_stored_task(named.name, declaration=named.declaration)
        except InvalidInputError:
            return None

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON; none where the run has no such split."""
        if split not in self._rows:
            has_split = split != "development" or self.provenance["development_digest"]
            text = self._artifact(_ROWS[split]) if has_split else ""
            self._rows[split] = tuple(text.split("\n")) if text else ()
        return self._rows[split]

    def answers(self, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row; one page is fetched at a time."""
        for candidate, split in self._sheets():
            if wanted.wants_sheet(candidate, split):
                yield from filter(wanted.wants, self._sheet(candidate, split))

    def votes(self, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""
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
        found = self._client.votes(self.id, ensemble.population, ensemble.ensemble_size)
        return tuple(map(vote_row, found))

    def descriptors(self, candidate: int | None = None) -> Iterator[tuple[int, Descriptor]]:
        """Yield index and resolved descriptor of each candidate, the base first, or of one."""
        for message in self.messages:
            if candidate in {None, message.index}:
                yield message.index, descriptor_from_proto(message.descriptor)

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
        return self._client.artifact(self.id, kind).decode()

    def _sheets(self) -> Sequence[tuple[int, str]]:
        """Return the candidates and splits of which answers are stored, in the order of files."""
        counts = {
            (message.index, split): count
            for message in self.messages
            for split, count in (
                ("selection", message.selection_answers),
                ("heldout", message.heldout_answers),
            )
        }
        for state in self.experiment.states:
            counts[BASE - state.updates, "heldout"] = state.heldout_answers
            counts[BASE - state.updates, "development"] = state.development_answers
        stored = [sheet for sheet, count in counts.items() if count]
        return sorted(stored, key=lambda sheet: (sheet[0], SPLITS.index(sheet[1])))

    def _sheet(self, candidate: int, split: str) -> Iterator[AnswerRecord]:
        questions = self._questions_of(split)
        for answer in self._client.answers(self.id, candidate, _SPLITS[split]):
            question = questions[answer.row]
            yield AnswerRecord(
                candidate=candidate,
                split=split,
                row=answer.row,
                prompt=question.prompt,
                gold=question.gold,
                completion=answer.completion,
                vote=answer.vote if answer.HasField("vote") else None,
                reward=answer.reward,
                correct=answer.correct,
                tokens=answer.tokens,
                truncated=answer.truncated,
            )

    def _ballot(self, expert: int) -> Ballot:
        answers = {answer.row: answer for answer in self._sheet(expert, "heldout")}
        return Ballot.from_partial_answers(answers, len(self._questions_of("heldout")))

    def _questions_of(self, split: str) -> tuple[ReadableRow, ...]:
        if split not in self._questions:
            self._questions[split] = readable_rows(self._task, self.rows(split))
        return self._questions[split]
