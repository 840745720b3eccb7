"""Early stop: the bars that candidates must reach, and the held-out rows whose votes are settled.

Both follow from stored results and only grow. So they are cached, a stale cache is still right,
and a restart computes them again. Only committed scores enter: claims, which read them, write
leases alone, and the scores of reports are handed over after their transaction.
"""

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from sqlalchemy import Select, select
from sqlmodel import Session, col

from modnorm.search.settled_votes import SettledVotes
from modnorm.search.stopping import Threshold, Thresholds
from services.aggregator.experiments.expert_selection import ballots_of, selection_of
from services.aggregator.storage.states import BASE_INDEX, JobState, Split
from services.aggregator.storage.tables import Experiment, Job

KEPT = 64
"""Experiments that are cached, of each kind."""
REFRESH_SECONDS = 30.0
"""Age of a cached bar after which the scores of other aggregators are looked up."""

ValueT = TypeVar("ValueT")


def _stops_early(experiment: Experiment) -> bool:
    """Tell whether an experiment leaves out work that changes no expert and no vote."""
    return experiment.spec.population.statistics == "experts"


@dataclass(slots=True)
class _CachedBars:
    bars: Thresholds
    time: float


class EarlyStopCache:
    """Thresholds and settled rows of recently used experiments; used by several threads."""

    def __init__(self) -> None:
        self._bars: OrderedDict[str, _CachedBars] = OrderedDict()
        self._votes: OrderedDict[str, SettledVotes] = OrderedDict()
        self._lock = Lock()

    def bar(
        self, session: Session, experiment: Experiment, candidate: int, *, fresh: bool = False
    ) -> Threshold | None:
        """Return the bar of a candidate; None if it is scored to its end.

        Args:
            session: The transaction, which has stored no score of the experiment.
            experiment: The experiment.
            candidate: Its index.
            fresh: Whether to look up the scores that are stored now.
        """
        if candidate == BASE_INDEX or not _stops_early(experiment):
            return None
        with self._lock:
            now = time.monotonic()
            known = self._bars.get(experiment.id) or _CachedBars(_bars_of(experiment), -math.inf)
            _keep(self._bars, experiment.id, known)
            if fresh or now - known.time > REFRESH_SECONDS:
                known.time = now
                _look_up(session, experiment, known.bars)
            return known.bars.of(candidate)

    def known_bar(self, experiment_id: str, candidate: int) -> Threshold | None:
        """Return the cached bar of a candidate; never waits."""
        known = self._bars.get(experiment_id)
        return known.bars.of(candidate) if known else None

    def scored(self, job: Job) -> None:
        """Take in the committed score of a job that is done."""
        if job.split is not Split.SELECTION or job.metric is None:
            return
        with self._lock:
            if known := self._bars.get(job.experiment_id):
                known.bars.add(job.candidate, job.metric)

    def forget(self, experiment_id: str) -> None:
        """Drop an experiment that has ended: votes on many rows take much memory."""
        with self._lock:
            self._bars.pop(experiment_id, None)
            self._votes.pop(experiment_id, None)

    def kept(self) -> frozenset[str]:
        """Return the experiments in the cache."""
        with self._lock:
            return frozenset((*self._bars, *self._votes))

    def skippable(
        self, session: Session, experiment: Experiment, candidate: int
    ) -> tuple[int, ...]:
        """Return the held-out rows that an expert may skip, ascending.

        Args:
            session: The transaction, which has stored no answers of the experiment.
            experiment: The experiment, which is voting.
            candidate: Index of the expert.
        """
        if candidate == BASE_INDEX or not _stops_early(experiment):
            return ()
        with self._lock:
            votes = self._votes.get(experiment.id) or SettledVotes(
                selection_of(session, experiment), experiment.heldout_rows
            )
            _keep(self._votes, experiment.id, votes)
            for expert, ballot in ballots_of(session, experiment, but=votes.counted):
                votes.add(expert, ballot)
            return votes.skippable(candidate)


def _bars_of(experiment: Experiment) -> Thresholds:
    population = experiment.spec.population
    return Thresholds(population.reported_prefixes, population.ensemble_sizes[-1])


def _look_up(session: Session, experiment: Experiment, bars: Thresholds) -> None:
    """Take in the best scores of every prefix, as many as its bar depends on."""
    population = experiment.spec.population
    size = population.ensemble_sizes[-1]
    for prefix in population.reported_prefixes:
        scores = _scores(experiment, prefix)
        best = session.execute(scores.order_by(col(Job.metric).desc()).limit(size)).all()
        # Among equal scores the first candidates rank first; the index finds them by score.
        last = best[-1][1] if best else None
        tied = scores.where(col(Job.metric) == last).order_by(col(Job.candidate)).limit(size)
        for candidate, score in (*best, *session.execute(tied)):
            if score is not None:
                bars.add(candidate, score)


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
    """Store a value as the latest, and drop the oldest when there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT:
        kept.popitem(last=False)
    return value
