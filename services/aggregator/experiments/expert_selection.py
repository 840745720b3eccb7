"""The experts of every (N, K), their ballots, and the answers that change no vote."""

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from threading import Lock

from sqlmodel import Session, col, select

from modnorm.search.answers import BASE_INDEX
from modnorm.search.ranking import Selection, select_experts
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
"""Experiments in the cache."""


class SettledVotesCache:
    """Held-out rows whose votes are settled; used by several threads.

    Settled rows follow from stored ballots and only grow. So a stale cache is right, and a restart
    computes them again.
    """

    def __init__(self) -> None:
        self._votes: BoundedDict[str, SettledVotes] = BoundedDict(KEPT)
        self._lock = Lock()

    def forget(self, experiment_id: str) -> None:
        """Remove an experiment that has ended: votes on many rows take much memory."""
        with self._lock:
            self._votes.pop(experiment_id, None)

    def cached_experiments(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._votes)

    def skippable(
        self, session: Session, experiment: Experiment, candidate: int
    ) -> tuple[int, ...]:
        """Return the held-out rows or questions that an expert may skip, in ascending order."""
        if candidate == BASE_INDEX or experiment.spec.population.statistics == "full":
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
