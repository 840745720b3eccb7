"""The reason why a round of a distillation does not go on."""

from sqlmodel import Session, col, exists, select

from modnorm.services.aggregator.storage.lookups import has_recent_event, is_training, pending_jobs
from modnorm.services.aggregator.storage.states import JobState
from modnorm.services.aggregator.storage.tables import Experiment, Job

TRAINER_SECONDS = 30.0
"""Seconds after which a training that no trainer has claimed is reported. An idle trainer claims
at once."""


def reason_to_wait(
    session: Session, parent: Experiment, child: Experiment | None, now: float
) -> str:
    """Return why a distillation waits; empty if it does not.

    Args:
        session: A transaction that may only read.
        parent: The distillation.
        child: The experiment that its round consists of now; None during a training.
        now: The time.
    """
    if child is not None:
        return child.waits_for
    if not pending_jobs(session, parent.id, trains=True, limit=1):
        return ""
    if not parent.waits_for and has_recent_event(session, parent, now, TRAINER_SECONDS):
        return ""
    query = select(exists().where(col(Job.state) == JobState.LEASED, is_training()))
    if session.exec(query).one():
        return "all trainers are busy with other trainings"
    return (
        "no trainer has claimed the training; start one with "
        "`docker compose --profile trainer up --wait` or "
        "`python -m modnorm.services.trainer.server`, or read the log of the one that runs"
    )
