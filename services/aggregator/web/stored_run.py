"""A finished experiment of the database, read once: its results never change."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import pyarrow as pa

from modnorm.analysis.answers import BASE_INDEX, AnswerFilter, AnswerRecord
from modnorm.analysis.document import ResultsDocument, results_document
from modnorm.analysis.environments import Environment, environments_of
from modnorm.analysis.run_data import CandidateRow, EnsembleRow, RunData, VoteRow
from modnorm.analysis.votes import VoteFilter, VoteRecord, vote_records
from modnorm.errors import PreconditionError
from modnorm.search.voting import Ballot
from modnorm.services.aggregator.api.to_proto import (
    candidate_message,
    experiment_message,
    vote_message,
)
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.result_store import ResultStore
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.states import ArtifactKind, Split
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.services.aggregator.web import run_queries
from modnorm.services.aggregator.web.candidate_queries import candidate_rows, candidate_table
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.tasks import Task
from modnorm.tasks.row_loading import ReadableRow, readable_rows
from modnorm.wire.run_messages import (
    base_row,
    data_records,
    ensemble_row,
    overlap,
    provenance,
    state_row,
    vote_row,
)

_CACHED_RUNS = 8


@dataclass(frozen=True, slots=True)
class PageStores:
    """The database and the stores that the page reads."""

    database: Database
    experiments: ExperimentStore
    results: ResultStore


class StoredRun:
    """Results of a finished experiment; each part is read when it is first needed.

    Used by several threads: two of them may read a part twice, with equal results.
    """

    def __init__(self, stored: PageStores, experiment: Experiment) -> None:
        self._stored = stored
        self._experiment = experiment
        self._ballots: dict[int, Ballot] = {}
        self._questions: dict[Split, tuple[ReadableRow, ...]] = {}

    @cached_property
    def document(self) -> ResultsDocument:
        """The results, as `results.json` holds them."""
        return results_document(self.run_data())

    @cached_property
    def candidates(self) -> pa.Table:
        """The candidates, with the columns of `modnorm.web.population.CANDIDATE_TYPES`."""
        base = self._base_reward()
        with self._stored.database.read() as session:
            return candidate_table(session, self._experiment.id, base)

    @cached_property
    def verdicts(self) -> Mapping[tuple[int, int], Sequence[bool]]:
        """Whether each vote is right, by (N, K)."""
        return {size: [vote.correct for vote in votes] for size, votes in self._votes.items()}

    @cached_property
    def environments(self) -> Sequence[Environment]:
        """The environments in which the answers were given."""
        return environments_of(self.run_data())

    def answers(
        self, wanted: AnswerFilter, candidates: Collection[int] | None = None
    ) -> Iterator[AnswerRecord]:
        """Yield answers by candidate, then split, then row.

        Several `candidates` replace the one of the filter.
        """
        if candidates is None and wanted.candidate is not None:
            candidates = [wanted.candidate]
        split = Split(wanted.split) if wanted.split else None
        with self._stored.database.read() as session:
            sheets = list(
                run_queries.answer_sheets(session, self._experiment.id, candidates, split)
            )
        for candidate, stored, answers in sheets:
            questions = self._questions_of(stored)
            for answer in answers:
                if wanted.row not in {None, answer.row} or (wanted.wrong and answer.correct):
                    continue
                yield AnswerRecord.of(candidate, str(stored), questions[answer.row], answer)

    def votes(self, wanted: VoteFilter) -> Iterator[VoteRecord]:
        """Yield votes by N, then K, then row."""
        ensembles = [each for each in self._ensembles if wanted.wants_ensemble(each)]
        ballots = self._ballots_of({expert for each in ensembles for expert in each.experts})
        golds = [question.gold for question in self._questions_of(Split.HELDOUT)]
        for ensemble in ensembles:
            votes = self._votes.get((ensemble.population, ensemble.ensemble_size), ())
            chosen = [vote for vote in votes if wanted.row in {None, vote.row}]
            yield from vote_records(ensemble, chosen, ballots, golds)

    def run_data(self) -> RunData:
        """Return what the results are computed from, without times."""
        record = self._stored.experiments.get(self._experiment.id)
        message = experiment_message(record)
        base = self._stored.results.candidates(self._experiment.id, BASE_INDEX - 1, 1)
        return RunData(
            spec=self._experiment.spec.model_dump(mode="json"),
            provenance=provenance(message),
            data=data_records(message),
            overlap=overlap(self._task(), self._text(Split.SELECTION), self._text(Split.HELDOUT)),
            candidates=self._rows(),
            base=base_row(message.base, [candidate_message(each) for each in base]),
            ensembles=self._ensembles,
            votes=self._votes,
            states=[state_row(each) for each in message.states],
        )

    def _rows(self) -> Sequence[CandidateRow]:
        with self._stored.database.read() as session:
            return candidate_rows(session, self._experiment.id)

    def _base_reward(self) -> float | None:
        record = self._stored.experiments.get(self._experiment.id)
        return next((job.metric for job in record.base if job.split is Split.SELECTION), None)

    @cached_property
    def _ensembles(self) -> Sequence[EnsembleRow]:
        message = experiment_message(self._stored.experiments.get(self._experiment.id))
        rows = map(ensemble_row, message.ensembles)
        return tuple(sorted(rows, key=lambda row: (row.population, row.ensemble_size)))

    @cached_property
    def _votes(self) -> Mapping[tuple[int, int], Sequence[VoteRow]]:
        with self._stored.database.read() as session:
            stored = run_queries.votes_of(session, self._experiment.id)
        return {
            size: [vote_row(vote_message(vote)) for vote in votes]
            for size, votes in stored.items()
        }

    def _ballots_of(self, experts: Collection[int]) -> Mapping[int, Ballot]:
        missing = [expert for expert in experts if expert not in self._ballots]
        if missing:
            rows = len(self._questions_of(Split.HELDOUT))
            with self._stored.database.read() as session:
                for expert, _, answers in run_queries.answer_sheets(
                    session, self._experiment.id, missing, Split.HELDOUT
                ):
                    by_row = {answer.row: answer for answer in answers}
                    self._ballots[expert] = Ballot.from_partial_answers(by_row, rows)
        return self._ballots

    def _questions_of(self, split: Split) -> tuple[ReadableRow, ...]:
        if split not in self._questions:
            self._questions[split] = readable_rows(self._task(), self._text(split))
        return self._questions[split]

    def _task(self) -> Task | None:
        try:
            return self._experiment.task()
        except PreconditionError:  # a newer version has another scorer
            return None

    def _text(self, split: Split) -> Sequence[str]:
        digest, _ = self._experiment.rows_of(split)
        return self._stored.results.artifact(digest, ArtifactKind.ROWS).split("\n")


class StoredRuns:
    """The finished runs that were read last; used by several threads."""

    def __init__(self, stored: PageStores) -> None:
        self._stored = stored
        self._runs: BoundedDict[tuple[str, float], StoredRun] = BoundedDict(_CACHED_RUNS)
        self._lock = Lock()

    def of(self, experiment: Experiment) -> StoredRun:
        """Return the cached results of a finished experiment; only a succeeded one has them."""
        with self._lock:
            run = self._runs.get(experiment.key)
            if run is None:
                run = StoredRun(self._stored, experiment)
            self._runs[experiment.key] = run
            return run
