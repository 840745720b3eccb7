"""Removal of experiments and of the artifacts that no experiment needs."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, CompoundSelect, delete, union
from sqlalchemy import select as select_columns
from sqlmodel import Session, SQLModel, col, select

from services.aggregator.storage.dialects import lock_table
from services.aggregator.storage.lookups import is_submitted, lock_experiment
from services.aggregator.storage.result_tables import AnswerSheet
from services.aggregator.storage.states import TERMINAL
from services.aggregator.storage.tables import Artifact, Experiment, Job, Prediction, Round


def ended_before(session: Session, limit: float) -> Sequence[Experiment]:
    """Return the experiments that ended before a time, oldest first.

    Parts of distillations and predictions are removed with their distillation or by their age.
    """
    query = (
        select(Experiment)
        .where(_has_ended(limit), is_submitted(), Experiment.parent_id == "")
        .order_by(col(Experiment.end_time), col(Experiment.id))
    )
    return session.exec(query).all()


def remove_ended(session: Session, experiment_id: str, limit: float) -> frozenset[str]:
    """Remove an experiment that ended before a time, with its parts.

    Returns:
        The digests of the students that it trained.
    """
    lock_experiment(session, experiment_id)
    # Another experiment may be copying its results, and would find only some of them.
    lock_table(session, Job)
    query = select(Experiment.id).where(Experiment.id == experiment_id, _has_ended(limit))
    if session.exec(query).first() is None:
        return frozenset()
    students = select(Round.student_digest).where(
        Round.experiment_id == experiment_id, Round.student_digest != ""
    )
    trained = frozenset(session.exec(students).all())
    parts = select(Experiment.id).where(Experiment.parent_id == experiment_id)
    for part in (*session.exec(parts).all(), experiment_id):
        remove_experiment(session, part)
    return trained


def remove_experiment(session: Session, experiment_id: str) -> None:
    """Remove an experiment or a prediction with all its rows, whatever its state."""
    session.flush()
    jobs = select(Job.id).where(Job.experiment_id == experiment_id)
    session.exec(delete(AnswerSheet).where(col(AnswerSheet.job_id).in_(jobs)))
    for table in reversed(SQLModel.metadata.sorted_tables):
        if "experiment_id" in table.c:
            session.execute(delete(table).where(table.c.experiment_id == experiment_id))
    session.exec(delete(Prediction).where(col(Prediction.id) == experiment_id))
    session.exec(delete(Experiment).where(col(Experiment.id) == experiment_id))


def remove_unused_artifacts(session: Session) -> int:
    """Remove the artifacts that no row names; return their number."""
    lock_table(session, Artifact)  # an experiment that is being stored may need one
    unused = delete(Artifact).where(col(Artifact.digest).not_in(_named_digests()))
    return int(session.exec(unused).rowcount)


def unused_digests(session: Session, digests: Collection[str]) -> frozenset[str]:
    """Return the digests that no row names."""
    named = session.execute(_named_digests()).scalars()
    return frozenset(digests).difference(named)


def _named_digests() -> CompoundSelect[tuple[str]]:
    """Return the query of all digests in any row."""
    columns = [
        column
        for table in SQLModel.metadata.sorted_tables
        for column in table.c
        if column.name.endswith("_digest")
    ]
    return union(*(select_columns(one).where(one.is_not(None)) for one in columns))


def _has_ended(limit: float) -> ColumnElement[bool]:
    return col(Experiment.state).in_(TERMINAL) & (col(Experiment.end_time) < limit)
