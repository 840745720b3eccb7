"""A finished experiment, read from the lab that ran it."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain

from modnorm.analysis.answers import ALL, AnswerFilter, AnswerRecord, require_split
from modnorm.analysis.run_data import EnsembleRow, VoteRow
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord, vote_records
from modnorm.analysis.wanted import require_candidate
from modnorm.arguments import require_type
from modnorm.client.calls import get_artifact, list_candidates, list_votes
from modnorm.client.connection import Connection
from modnorm.client.lab_results import LabResults, answer_record, split_rows
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.search.voting import Ballot
from modnorm.tasks.readable_rows import ReadableRow
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import descriptor_from_proto
from modnorm.wire.run_messages import vote_row


class LabRun(LabResults):
    """A finished experiment of a lab; see `modnorm.analysis.finished_run.FinishedRun`.

    Raises:
        PreconditionError: it has not succeeded.
    """

    def __init__(self, client: Connection, experiment: experiments.Experiment) -> None:
        super().__init__(experiment)
        self._client = client
        self._rows: dict[str, tuple[str, ...]] = {}
        self._questions: dict[str, tuple[ReadableRow, ...]] = {}

    @cached_property
    def messages(self) -> Sequence[experiments.Candidate]:
        """The candidates as the lab sends them, the base first."""
        return tuple(self._client.pages(partial(list_candidates, self.id)))

    def rows(self, split: str) -> tuple[str, ...]:
        """Return the rows of a split, each as JSON; none if the run has no development rows.

        Raises:
            InvalidInputError: there is no split of this name.
        """
        require_split(split)
        if split not in self._rows:
            call = self.rows_call(split)
            self._rows[split] = split_rows(self._client.read(call)) if call else ()
        return self._rows[split]

    def answers(self, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
        """Return answers by candidate, then split, then row; one page is fetched at a time."""
        sheets = map(self._sheet, self.sheets(wanted))
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

    def _sheet(self, sheet: tuple[int, str]) -> Iterator[AnswerRecord]:
        questions = self._questions_of(sheet[1])
        for answer in self._client.pages(self.sheet_pages(*sheet)):
            yield answer_record(sheet, answer, questions)

    def _ballot(self, expert: int) -> Ballot:
        answers = {answer.row: answer for answer in self._sheet((expert, "heldout"))}
        return Ballot.from_partial_answers(answers, len(self._questions_of("heldout")))

    def _questions_of(self, split: str) -> tuple[ReadableRow, ...]:
        if split not in self._questions:
            self._questions[split] = self.questions(self.rows(split))
        return self._questions[split]
