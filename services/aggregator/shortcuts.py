"""What of an experiment need not be done: bars of candidates, held-out rows that are settled.

Both follow from what is stored and only grow, so they are kept in memory, are right however old
they are, and are found again after a restart. What is taken in is committed: claims, which read,
write leases alone; scores of reports are handed over after their transaction.
"""

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from sqlalchemy import Select, select
from sqlmodel import Session, col

from modnorm.search.settling import Settling
from modnorm.search.stopping import Bar, Bars
from services.aggregator.election import ballots_of, selection_of
from services.aggregator.lifecycle import spec_of
from services.aggregator.rows import AnyJob
from services.aggregator.states import BASE_INDEX, JobState, Split
from services.aggregator.tables import Experiment, Job

KEPT = 64
"""Experiments that are kept, of each kind."""
REFRESH_SECONDS = 30.0
"""After as long, scores that other aggregators stored are looked up."""

ValueT = TypeVar("ValueT")


def wanted(experiment: Experiment) -> bool:
    """Tell whether an experiment leaves out what changes no expert and no vote."""
    return spec_of(experiment).population.statistics == "experts"


@dataclass(slots=True)
class _Known:
    bars: Bars
    time: float


class Shortcuts:
    """Bars and settled rows of the experiments asked for last; used by several threads."""

    def __init__(self) -> None:
        self._bars: OrderedDict[str, _Known] = OrderedDict()
        self._votes: OrderedDict[str, Settling] = OrderedDict()
        self._lock = Lock()

    def bar(
        self, session: Session, experiment: Experiment, candidate: int, *, fresh: bool = False
    ) -> Bar | None:
        """Return the bar of a candidate; None where it is scored to its end.

        Args:
            session: The transaction, which has stored no score of the experiment.
            experiment: The experiment.
            candidate: Its index.
            fresh: Whether to look up what is stored now, by whomever.
        """
        if candidate == BASE_INDEX or not wanted(experiment):
            return None
        with self._lock:
            now = time.monotonic()
            known = self._bars.get(experiment.id) or _Known(_bars_of(experiment), -math.inf)
            _keep(self._bars, experiment.id, known)
            if fresh or now - known.time > REFRESH_SECONDS:
                known.time = now
                _look_up(session, experiment, known.bars)
            return known.bars.of(candidate)

    def known_bar(self, experiment_id: str, candidate: int) -> Bar | None:
        """Return the bar of a candidate as far as it is in memory; never waits."""
        known = self._bars.get(experiment_id)
        return known.bars.of(candidate) if known else None

    def scored(self, job: AnyJob) -> None:
        """Take in the score of a job that is done, once it is committed."""
        if job.split is not Split.SELECTION or job.metric is None:
            return
        with self._lock:
            if known := self._bars.get(job.experiment_id):
                known.bars.complete(job.candidate, job.metric)

    def forget(self, experiment_id: str) -> None:
        """Let go of an experiment that has ended: votes on many rows take much room."""
        with self._lock:
            self._bars.pop(experiment_id, None)
            self._votes.pop(experiment_id, None)

    def kept(self) -> frozenset[str]:
        """Return the experiments that something is kept of."""
        with self._lock:
            return frozenset((*self._bars, *self._votes))

    def skippable(
        self, session: Session, experiment: Experiment, candidate: int
    ) -> tuple[int, ...]:
        """Return the held-out rows that an expert may leave out, ascending.

        Args:
            session: The transaction, which has stored no answers of the experiment.
            experiment: The experiment, which is voting.
            candidate: Index of the expert.
        """
        if candidate == BASE_INDEX or not wanted(experiment):
            return ()
        with self._lock:
            votes = self._votes.get(experiment.id) or Settling(
                selection_of(session, experiment), experiment.heldout_rows
            )
            _keep(self._votes, experiment.id, votes)
            for expert, ballot in ballots_of(session, experiment, but=votes.taken):
                votes.take(expert, ballot)
            return votes.skippable(candidate)


def _bars_of(experiment: Experiment) -> Bars:
    population = spec_of(experiment).population
    return Bars(population.reported_prefixes, population.ensemble_sizes[-1])


def _look_up(session: Session, experiment: Experiment, bars: Bars) -> None:
    """Take in the best scores of every prefix: as many as make a difference."""
    population = spec_of(experiment).population
    size = population.ensemble_sizes[-1]
    for prefix in population.reported_prefixes:
        scores = _scores(experiment, prefix)
        best = session.execute(scores.order_by(col(Job.metric).desc()).limit(size)).all()
        # Of equal scores the first candidates count; the index leads to them by score alone.
        last = best[-1][1] if best else None
        tied = scores.where(col(Job.metric) == last).order_by(col(Job.candidate)).limit(size)
        for candidate, score in (*best, *session.execute(tied)):
            if score is not None:
                bars.complete(candidate, score)


def _scores(experiment: Experiment, prefix: int) -> Select[int, float | None]:
    """Return the query for the complete scores of the first candidates."""
    return select(col(Job.candidate), col(Job.metric)).where(
        col(Job.experiment_id) == experiment.id,
        col(Job.split) == Split.SELECTION,
        col(Job.state) == JobState.DONE,
        col(Job.metric).is_not(None),
        col(Job.candidate) != BASE_INDEX,
        col(Job.candidate) < prefix,
    )


def _keep(kept: OrderedDict[str, ValueT], key: str, value: ValueT) -> ValueT:
    """Keep a value as the latest; the oldest goes when there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT:
        kept.popitem(last=False)
    return value
