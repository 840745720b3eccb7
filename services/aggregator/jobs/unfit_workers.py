"""Experiments that wait because evaluators lack what their jobs need, or start an engine."""

from collections.abc import Sequence

from sqlalchemy import Exists, SQLColumnExpression
from sqlmodel import Session, col, exists, select

from modnorm.services.aggregator.experiments.lifecycle import record
from modnorm.services.aggregator.storage.lookups import has_recent_event
from modnorm.services.aggregator.storage.states import TERMINAL, JobState
from modnorm.services.aggregator.storage.tables import Experiment, Job

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


def record_start(session: Session, experiment: Experiment, stage: str, now: float) -> None:
    """Record the stage of an engine's start; the empty stage is its end.

    An experiment whose rows another engine answers does not wait for the start.
    """
    if stage and session.exec(select(_answering(experiment.id))).one():
        return
    message = f"the engine starts: {stage}" if stage else "the engine is ready"
    waits_for = message if stage else ""
    record(session, experiment, message, now, waits_for=waits_for, engine_stage=stage)


def waits_that_ended(session: Session) -> Sequence[str]:
    """Return the ids of waiting experiments of whose leased jobs one has answers.

    A lease alone proves nothing: an evaluator claims a job before it sees what it lacks.
    """
    query = select(Experiment.id).where(
        col(Experiment.state).not_in(TERMINAL),
        Experiment.waits_for != "",
        _answering(col(Experiment.id)),
    )
    return session.exec(query).all()


def _answering(experiment_id: SQLColumnExpression[str] | str) -> Exists:
    """Return the condition that a leased job of an experiment has answers."""
    return exists().where(
        col(Job.experiment_id) == experiment_id,
        col(Job.state) == JobState.LEASED,
        col(Job.answers_done) > 0,
    )


def end_wait(session: Session, experiment: Experiment, now: float) -> None:
    """Record that a locked experiment waits no longer, unless that is recorded."""
    if experiment.state not in TERMINAL and experiment.waits_for:
        record(session, experiment, "no longer waiting: an evaluator answers its rows", now)
