"""Experiments that wait because evaluators lack what their jobs need."""

from sqlmodel import Session, col, exists, select

from services.aggregator.experiments.lifecycle import record
from services.aggregator.storage.lookups import last_event_time
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
    if now - last_event_time(session, experiment) < UNFIT_SECONDS:
        return
    leased = exists().where(
        col(Job.experiment_id) == experiment.id, col(Job.state) == JobState.LEASED
    )
    if not session.exec(select(leased)).one():
        record(session, experiment, f"waiting: {reason}", now, waits_for=reason)
