"""Queries of the page: figures of the list and progress."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func
from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.services.aggregator.storage.result_tables import Ensemble
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Event, Experiment, Job
from modnorm.web.sources import BusyWorker, Headline


def list_experiments(
    session: Session, scope: str | None, start: int, limit: int
) -> Sequence[Experiment]:
    """Return experiments, newest first."""
    newest = col(Experiment.create_time).desc(), col(Experiment.id).desc()
    query = select(Experiment).order_by(*newest)
    if scope is not None:
        query = query.where(Experiment.tenant == scope)
    return session.exec(query.offset(start).limit(limit)).all()


def headlines(session: Session, ids: Sequence[str]) -> Mapping[str, Headline]:
    """Return the figures of experiments that have finished, by id."""
    bases = {
        experiment_id: (metric, correct)
        for experiment_id, metric, correct in session.exec(
            select(Job.experiment_id, Job.metric, Job.correct).where(
                col(Job.experiment_id).in_(ids),
                Job.split == Split.HELDOUT,
                Job.candidate == BASE_INDEX,
            )
        )
    }
    tops = {
        experiment_id: (metric, rows, correct)
        for experiment_id, metric, rows, correct in session.exec(
            select(Ensemble.experiment_id, Ensemble.metric, Ensemble.rows, Ensemble.correct)
            .where(col(Ensemble.experiment_id).in_(ids))
            .order_by(col(Ensemble.population), col(Ensemble.ensemble_size))
        )
    }
    return {each: _headline(*bases.get(each, (None, 0)), tops.get(each)) for each in ids}


def _headline(base: float | None, right: int, top: tuple[float, int, int] | None) -> Headline:
    if top is None:
        return Headline(base, None, None, None)
    metric, rows, correct = top
    base_interval = accuracy_interval(base, rows, right)
    return Headline(base, base_interval, metric, accuracy_interval(metric, rows, correct))


def last_events(session: Session, experiment_id: str, limit: int) -> Sequence[Event]:
    """Return the last events of an experiment, oldest first."""
    query = (
        select(Event)
        .where(Event.experiment_id == experiment_id)
        .order_by(col(Event.cursor).desc())
        .limit(limit)
    )
    return session.exec(query).all()[::-1]


def busy_workers(session: Session, experiment_id: str) -> Sequence[BusyWorker]:
    """Return the workers that hold leases of an experiment, by name."""
    query = (
        select(Job.worker, func.count())
        .where(
            Job.experiment_id == experiment_id,
            col(Job.split).in_(Split),  # lets the query use an index
            Job.state == JobState.LEASED,
        )
        .group_by(col(Job.worker))
        .order_by(col(Job.worker))
    )
    return [BusyWorker(name, jobs) for name, jobs in session.exec(query)]
