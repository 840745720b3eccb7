"""A finished experiment of a lab, whose answers and votes are read without blocking."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from modnorm.analysis.answers import SPLITS, AnswerFilter, AnswerRecord
from modnorm.analysis.listing import AsyncListing, Listing
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow
from modnorm.analysis.votes import VoteFilter, VoteRecord, vote_records
from modnorm.analysis.wanted import require_answered_row, require_candidate, require_voted_row
from modnorm.client.async_connection import AsyncConnection
from modnorm.client.calls import list_votes
from modnorm.client.lab_results import LabResults, answer_record, split_rows
from modnorm.search.voting import Ballot
from modnorm.spec import ExperimentSpec
from modnorm.tasks.readable_rows import ReadableRow
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.run_messages import vote_row


@dataclass(frozen=True, slots=True)
class AsyncRun:
    """A finished run of a lab, as `AsyncClient.run` returns it.

    What it holds is in memory. `answers` and `votes` are read from the lab with `async for`.
    """

    name: str
    """Id in the lab."""
    spec: ExperimentSpec = field(repr=False)
    base: BaseRow = field(repr=False)
    """The unperturbed model."""
    candidates: Listing[CandidateRow] = field(repr=False, compare=False)
    """The population in candidate order, without the base."""
    ensembles: Listing[EnsembleRow] = field(repr=False, compare=False)
    """The ensembles, by N, then by K."""
    source: "AsyncLabRun" = field(repr=False, compare=False)
    """The run that answers and votes are read from."""

    def answers(
        self,
        candidate: int | None = None,
        split: str | None = None,
        row: int | None = None,
        *,
        wrong: bool = False,
    ) -> AsyncListing[AnswerRecord]:
        """Return the wanted answers, as `Run.answers` does; reading them checks split and row."""
        wanted = AnswerFilter(candidate, split, row, wrong)
        require_candidate(candidate, tuple(self.candidates), self.spec)
        return AsyncListing(AnswerRecord, lambda: self.source.answers(wanted))

    def votes(self, row: int | None = None) -> AsyncListing[VoteRecord]:
        """Return the votes of all ensembles by N, then K, then row; or those on one row."""
        wanted = VoteFilter(row)
        require_voted_row(row, self.source.ensembles)
        return AsyncListing(VoteRecord, lambda: self.source.votes(wanted))


class AsyncLabRun(LabResults):
    """Reads answers and votes of a finished experiment.

    Raises:
        PreconditionError: it has not succeeded.
    """

    def __init__(
        self,
        client: AsyncConnection,
        experiment: experiments.Experiment,
        candidates: Sequence[experiments.Candidate],
    ) -> None:
        super().__init__(experiment)
        self._client = client
        self._candidates = candidates
        self._questions: dict[str, tuple[ReadableRow, ...]] = {}

    @property
    def messages(self) -> Sequence[experiments.Candidate]:
        """The candidates as the lab sends them, the base first."""
        return self._candidates

    @property
    def run(self) -> AsyncRun:
        """The run as users see it."""
        return AsyncRun(
            name=self.id,
            spec=self.spec,
            base=self.base,
            candidates=Listing(CandidateRow, lambda: iter(self.candidates)),
            ensembles=Listing(EnsembleRow, lambda: iter(self.ensembles)),
            source=self,
        )

    async def answers(self, wanted: AnswerFilter) -> AsyncIterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row; one page is fetched at a time.

        Raises:
            NotFoundError: the run has no such split or row.
        """
        if (wanted.split, wanted.row) != (None, None):
            lengths = {name: len(await self._questions_of(name)) for name in SPLITS}
            require_answered_row(wanted, lengths)
        for sheet in self.sheets(wanted):
            async for answer in self._sheet(sheet):
                if wanted.wants(answer):
                    yield answer

    async def votes(self, wanted: VoteFilter) -> AsyncIterator[VoteRecord]:
        """Yield votes by N, then K, then row."""
        ensembles = list(filter(wanted.wants_ensemble, self.ensembles))
        experts = {expert for ensemble in ensembles for expert in ensemble.experts}
        ballots = {expert: await self._ballot(expert) for expert in sorted(experts)}
        golds = [question.gold for question in await self._questions_of("heldout")]
        for ensemble in ensembles:
            page = partial(list_votes, self.id, ensemble.population, ensemble.ensemble_size)
            votes = [vote_row(vote) async for vote in self._client.pages(page)]
            chosen = [vote for vote in votes if wanted.row in {None, vote.row}]
            for record in vote_records(ensemble, chosen, ballots, golds):
                yield record

    async def _sheet(self, sheet: tuple[int, str]) -> AsyncIterator[AnswerRecord]:
        questions = await self._questions_of(sheet[1])
        async for answer in self._client.pages(self.sheet_pages(*sheet)):
            yield answer_record(sheet, answer, questions)

    async def _ballot(self, expert: int) -> Ballot:
        answers = {answer.row: answer async for answer in self._sheet((expert, "heldout"))}
        return Ballot.from_partial_answers(answers, len(await self._questions_of("heldout")))

    async def _questions_of(self, split: str) -> tuple[ReadableRow, ...]:
        if split not in self._questions:
            call = self.rows_call(split)
            rows = split_rows(await self._client.read(call)) if call else ()
            self._questions[split] = self.questions(rows)
        return self._questions[split]
