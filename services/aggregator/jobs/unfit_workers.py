"""Experiments that wait because evaluators lack what their jobs need."""

from collections.abc import Sequence

from sqlmodel import Session, col, exists, select

from services.aggregator.experiments.lifecycle import record
from services.aggregator.storage.lookups import has_recent_event
from services.aggregator.storage.states import TERMINAL, JobState
from services.aggregator.storage.tables import Experiment, Job

UNFIT_SECONDS = 10.0
"""Seconds without an event after which an experiment waits. A fit evaluator claims at once."""


def record_unfit(session: Session, experiment: Experiment, reason: str, now: float) -> None:
    """Record why an evaluator released a job, unless another evaluates the locked experiment.

    The pause between two events limits their number when evaluators differ in their reasons.
    """
    reason = f"an evaluator released its jobs: {reason}"
    if experiment.state in TERMINAL or reason == experiment.waits_for:
        return
    if has_recent_event(session, experiment, now, UNFIT_SECONDS):
        return
    leased = exists().where(
        col(Job.experiment_id) == experiment.id, col(Job.state) == JobState.LEASED
    )
    if not session.exec(select(leased)).one():
        record(session, experiment, f"waiting: {reason}", now, waits_for=reason)


def waits_that_ended(session: Session) -> Sequence[str]:
    """Return the ids of waiting experiments of whose leased jobs one has answers.

    A lease alone proves nothing: an evaluator claims a job before it sees what it lacks.
    """
    answering = exists().where(
        col(Job.experiment_id) == col(Experiment.id),
        col(Job.state) == JobState.LEASED,
        col(Job.answers_done) > 0,
    )
    query = select(Experiment.id).where(
        col(Experiment.state).not_in(TERMINAL), Experiment.waits_for != "", answering
    )
    return session.exec(query).all()


def end_wait(session: Session, experiment: Experiment, now: float) -> None:
    """Record that a locked experiment waits no longer, unless that is recorded."""
    if experiment.state not in TERMINAL and experiment.waits_for:
        record(session, experiment, "no longer waiting: an evaluator answers its rows", now)
