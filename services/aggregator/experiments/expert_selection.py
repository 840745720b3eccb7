"""The experts of every (N, K), their ballots, and the work that changes neither."""

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from threading import Lock

from sqlalchemy import select as select_columns
from sqlmodel import Session, col, select

from modnorm.search.answers import BASE_INDEX
from modnorm.search.ranking import Selection, select_experts
from modnorm.search.stopping import Threshold, Thresholds
from modnorm.search.voting import Ballot, SettledVotes
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Experiment,
    Job,
    JobState,
    Split,
)
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.wire.answer_sheets import unpack_answers

_SHEETS = 64
"""Answer sheets read from Postgres at once. Postgres aborts a transaction whose process computes
for too long between two statements, as it would with a thousand sheets."""


def selection_of(session: Session, experiment: Experiment) -> Selection:
    """Return the experts of every (N, K) after the selection, or those that are only asked."""
    population = experiment.spec.population
    if asked := experiment.asked_experts:
        return {(population.size, len(asked)): asked}
    rewards: list[float | None] = [None] * population.size
    scored = session.exec(
        select(Job.candidate, Job.metric).where(
            Job.experiment_id == experiment.id,
            Job.split == Split.SELECTION,
            Job.state == JobState.DONE,
            Job.candidate != BASE_INDEX,
        )
    )
    for candidate, reward in scored:
        rewards[candidate] = reward
    return select_experts(rewards, population.reported_prefixes, population.ensemble_sizes)


def ballots_of(
    session: Session, experiment: Experiment, *, excluded: Collection[int] = ()
) -> Iterator[tuple[int, Ballot]]:
    """Yield candidate and ballot of each model that has answered, in ascending order."""
    sheets = (
        select(Job.candidate, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(
            Job.experiment_id == experiment.id,
            Job.split == experiment.voted_split,
            Job.state == JobState.DONE,
            col(Job.candidate).not_in(excluded),
        )
        .order_by(col(Job.candidate))
    )
    if not excluded:  # otherwise few are left, and claims wait for them
        sheets = sheets.execution_options(yield_per=_SHEETS)
    for candidate, content in session.exec(sheets):
        answers = {answer.row: answer for answer in unpack_answers(content)}
        yield candidate, Ballot.from_partial_answers(answers, experiment.heldout_rows)


KEPT = 64
"""Experiments in each cache."""


def _stops_early(experiment: Experiment) -> bool:
    """Return whether an experiment skips work that changes no expert and no vote."""
    return experiment.spec.population.statistics == "experts"


class EarlyStopCache:
    """Thresholds that candidates must reach, and settled held-out rows; used by several threads.

    Both follow from stored results and only grow. So a stale cache is still right, and a restart
    computes them again. Only committed scores enter: claims read them and write only leases;
    reports add their scores after their transaction.
    """

    def __init__(self) -> None:
        self._thresholds: BoundedDict[str, Thresholds] = BoundedDict(KEPT)
        self._votes: BoundedDict[str, SettledVotes] = BoundedDict(KEPT)
        self._lock = Lock()

    def threshold(
        self, session: Session, experiment: Experiment, candidate: int
    ) -> Threshold | None:
        """Return the threshold of a candidate; None if all its rows are scored.

        The transaction has stored no score of the experiment.
        """
        if candidate == BASE_INDEX or not _stops_early(experiment):
            return None
        with self._lock:
            cached = self._thresholds.get(experiment.id) or _stored(session, experiment)
            self._thresholds[experiment.id] = cached
            return cached.of(candidate)

    def cached_threshold(self, experiment_id: str, candidate: int) -> Threshold | None:
        """Return the cached threshold of a candidate; never waits."""
        cached = self._thresholds.get(experiment_id)
        return cached.of(candidate) if cached else None

    def scored(self, job: Job) -> None:
        """Add the committed score of a finished job."""
        if job.split is not Split.SELECTION or job.metric is None:
            return
        with self._lock:
            if cached := self._thresholds.get(job.experiment_id):
                cached.add(job.candidate, job.metric)

    def forget(self, experiment_id: str) -> None:
        """Remove an experiment that has ended: votes on many rows take much memory."""
        with self._lock:
            self._thresholds.pop(experiment_id, None)
            self._votes.pop(experiment_id, None)

    def cached_experiments(self) -> frozenset[str]:
        with self._lock:
            return frozenset((*self._thresholds, *self._votes))

    def skippable(
        self, session: Session, experiment: Experiment, candidate: int
    ) -> tuple[int, ...]:
        """Return the held-out rows or questions that an expert may skip, in ascending order."""
        if candidate == BASE_INDEX or not _stops_early(experiment):
            return ()
        with self._lock:
            votes = self._votes.get(experiment.id) or SettledVotes(
                selection_of(session, experiment), experiment.heldout_rows
            )
            self._votes[experiment.id] = votes
            ballots = ballots_of(session, experiment, excluded=votes.counted)
            for expert, ballot in _countable(experiment, votes, ballots):
                votes.add(expert, ballot)
            return votes.skippable(candidate)


def _countable(
    experiment: Experiment, votes: SettledVotes, ballots: Iterable[tuple[int, Ballot]]
) -> Iterable[tuple[int, Ballot]]:
    """Return the ballots that may settle votes now.

    A question's ballot counts once all better-ranked experts have answered. So no answer is
    missing that the experts would give one after another (`RankedVotes`).
    """
    if not experiment.asked_experts:
        return ballots
    known = dict(ballots)
    uncounted = [each for each in experiment.asked_experts if each not in votes.counted]
    return [(each, known[each]) for each in takewhile(known.__contains__, uncounted)]


def _stored(session: Session, experiment: Experiment) -> Thresholds:
    """Return the thresholds of the stored scores: the best ones of every prefix."""
    population = experiment.spec.population
    size = population.ensemble_sizes[-1]
    thresholds = Thresholds(population.reported_prefixes, size)
    for prefix in population.reported_prefixes:
        scores = select_columns(col(Job.candidate), col(Job.metric)).where(
            col(Job.experiment_id) == experiment.id,
            col(Job.split) == Split.SELECTION,
            col(Job.state) == JobState.DONE,
            col(Job.metric).is_not(None),
            col(Job.candidate) != BASE_INDEX,
            col(Job.candidate) < prefix,
        )
        best = session.execute(scores.order_by(col(Job.metric).desc()).limit(size)).all()
        # Equal scores rank by candidate; the index orders by score only.
        last = best[-1][1] if best else None
        tied = scores.where(col(Job.metric) == last).order_by(col(Job.candidate)).limit(size)
        for candidate, score in (*best, *session.execute(tied)):
            if score is not None:
                thresholds.add(candidate, score)
    return thresholds
