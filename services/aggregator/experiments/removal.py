"""Removal of experiments, and of the artifacts that no experiment needs."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Subquery, delete, union
from sqlalchemy import select as select_columns
from sqlmodel import Session, SQLModel, col, select

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.storage.dialects import lock_table
from modnorm.services.aggregator.storage.lookups import lock_experiment
from modnorm.services.aggregator.storage.result_tables import AnswerSheet
from modnorm.services.aggregator.storage.states import TERMINAL
from modnorm.services.aggregator.storage.tables import Artifact, Experiment, Job


def ended_before(session: Session, limit: float) -> Sequence[Experiment]:
    """Return the experiments that ended before a time, oldest first."""
    query = (
        select(Experiment)
        .where(_has_ended(limit))
        .order_by(col(Experiment.end_time), col(Experiment.id))
    )
    return session.exec(query).all()


def remove_ended(session: Session, experiment_id: str, limit: float) -> bool:
    """Remove an experiment; return whether it did end before a time and was here."""
    try:
        lock_experiment(session, experiment_id)
    except NotFoundError:  # another process has removed it
        return False
    query = select(Experiment.id).where(Experiment.id == experiment_id, _has_ended(limit))
    if session.exec(query).first() is None:
        return False
    remove_experiment(session, experiment_id)
    return True


def remove_experiment(session: Session, experiment_id: str) -> None:
    """Remove an experiment with all its rows, whatever its state."""
    session.flush()
    jobs = select(Job.id).where(Job.experiment_id == experiment_id)
    session.exec(delete(AnswerSheet).where(col(AnswerSheet.job_id).in_(jobs)))
    for table in reversed(SQLModel.metadata.sorted_tables):
        if "experiment_id" in table.c:
            session.execute(delete(table).where(table.c.experiment_id == experiment_id))
    session.exec(delete(Experiment).where(col(Experiment.id) == experiment_id))


def remove_unused_artifacts(session: Session) -> int:
    """Remove the artifacts that no row names; return their number."""
    lock_table(session, Artifact)  # an experiment that is being stored may need one
    named = select_columns(_named_digests())
    unused = delete(Artifact).where(col(Artifact.digest).not_in(named))
    return int(session.exec(unused).rowcount)


def _named_digests() -> Subquery:
    """Return the query of all digests in any row."""
    columns = [
        column
        for table in SQLModel.metadata.sorted_tables
        for column in table.c
        if column.name.endswith("_digest")
    ]
    return union(*(select_columns(one).where(one.is_not(None)) for one in columns)).subquery()


def _has_ended(limit: float) -> ColumnElement[bool]:
    return col(Experiment.state).in_(TERMINAL) & (col(Experiment.end_time) < limit)
