"""Removal of experiments, and of the artifacts and students that no experiment needs."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Subquery, delete, union
from sqlalchemy import select as select_columns
from sqlmodel import Session, SQLModel, col, select

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.dialects import insert_if_absent, lock_table
from modnorm.services.aggregator.storage.lookups import is_submitted, lock_experiment
from modnorm.services.aggregator.storage.result_tables import AnswerSheet
from modnorm.services.aggregator.storage.states import TERMINAL
from modnorm.services.aggregator.storage.tables import (
    Artifact,
    Experiment,
    Job,
    ObsoleteStudent,
    Prediction,
    Round,
)
from modnorm.services.common.students import Students


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


def remove_ended(session: Session, experiment_id: str, limit: float) -> bool:
    """Remove an experiment with its parts; return whether it did end before a time and was here.

    The students that it trained become obsolete; `remove_unused_students` removes their files.
    """
    try:
        lock_experiment(session, experiment_id)
    except NotFoundError:  # another process has removed it
        return False
    parts = select(Experiment.id).where(Experiment.parent_id == experiment_id)
    part_ids = session.exec(parts.order_by(col(Experiment.id)).with_for_update()).all()
    query = select(Experiment.id).where(Experiment.id == experiment_id, _has_ended(limit))
    if session.exec(query).first() is None:
        return False
    students = select(Round.student_digest).where(
        Round.experiment_id == experiment_id, Round.student_digest != ""
    )
    trained = session.exec(students.distinct()).all()
    for part_id in part_ids:
        remove_experiment(session, part_id)
    remove_experiment(session, experiment_id)
    for digest in trained:
        insert_if_absent(session, ObsoleteStudent, {"digest": digest})
    return True


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
    named = select_columns(_named_digests())
    unused = delete(Artifact).where(col(Artifact.digest).not_in(named))
    return int(session.exec(unused).rowcount)


def remove_unused_students(database: Database, students: Students) -> int:
    """Remove the obsolete and the old students that no row names; return their number.

    A killed trainer may leave a student that no report names, so it never becomes obsolete.
    A killed removal is completed by the next one: a student stays obsolete until the transaction
    that took its directory away commits.
    """
    with database.read() as session:
        obsolete = session.exec(select(ObsoleteStudent.digest)).all()
    digests = {*obsolete, *students.old()}
    removed = sum(_remove_student(database, students, digest) for digest in sorted(digests))
    students.clean_up()
    return removed


def _remove_student(database: Database, students: Students, digest: str) -> bool:
    with database.write() as session:
        lock_table(session, Round)  # a round that is being stored may name it
        session.exec(delete(ObsoleteStudent).where(col(ObsoleteStudent.digest) == digest))
        named = _named_digests()
        if session.execute(select_columns(named).where(named.c[0] == digest)).first():
            return False
        students.remove(digest)
        return True


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
