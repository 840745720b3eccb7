"""Removes old experiments: `python -m modnorm.services.aggregator.remove_old --days 90`."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import delete, union
from sqlalchemy import select as select_columns
from sqlalchemy.engine import URL
from sqlmodel import Session, SQLModel, col, select

from modnorm.errors import InvalidInputError, ModnormError, NotFoundError
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.dialects import lock_table, parse_url
from modnorm.services.aggregator.storage.lookups import lock_experiment
from modnorm.services.aggregator.storage.tables import (
    TERMINAL,
    AnswerSheet,
    Artifact,
    Experiment,
    Job,
)
from modnorm.services.common.logging import configure_logging
from modnorm.services.common.service_process import read_settings
from modnorm.services.common.settings import AggregatorSettings


def ended_before(session: Session, limit: float) -> Sequence[Experiment]:
    """Return the experiments that ended before a time, oldest first."""
    query = (
        select(Experiment)
        .where(col(Experiment.state).in_(TERMINAL), col(Experiment.end_time) < limit)
        .order_by(col(Experiment.end_time), col(Experiment.id))
    )
    return session.exec(query).all()


def remove_ended(session: Session, experiment_id: str, limit: float) -> bool:
    """Remove an experiment; return whether it was stored and ended before a time."""
    try:
        experiment = lock_experiment(session, experiment_id)
    except NotFoundError:  # another process has removed it
        return False
    if experiment.end_time is None or experiment.end_time >= limit:
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
    columns = [
        column
        for table in SQLModel.metadata.sorted_tables
        for column in table.c
        if column.name.endswith("_digest")
    ]
    digests = union(*(select_columns(one).where(one.is_not(None)) for one in columns))
    named = select_columns(digests.subquery())
    unused = delete(Artifact).where(col(Artifact.digest).not_in(named))
    return int(session.exec(unused).rowcount)


_DAY = 86_400.0

logger = logging.getLogger(__name__)


def _require_file(url: URL) -> None:
    """Refuse an SQLite file that does not exist, which SQLite would make."""
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise InvalidInputError(
            f"there is no database {Path(url.database or '').absolute()}",
            field="MODNORM_DATABASE_URL",
            remedy="set it as for the aggregator",
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Remove experiments that ended some days ago; the aggregator may run meanwhile."""
    parser = argparse.ArgumentParser(
        prog="python -m modnorm.services.aggregator.remove_old",
        description="Remove experiments that ended some days ago, with answers and "
        "artifacts that no other experiment needs. Nothing brings them back but a backup.",
    )
    parser.add_argument("--days", type=float, required=True, help="days since their end")
    parser.add_argument("--dry-run", action="store_true", help="only log which experiments")
    options = parser.parse_args(arguments)
    if not options.days >= 0:  # also refuses nan
        parser.error("--days: at least 0 is needed")
    settings = read_settings(AggregatorSettings)
    configure_logging(settings.log_level)
    try:
        _require_file(parse_url(settings.database_url))
        with closing(Database(settings.database_url)) as database:
            database.check_schema()
            limit, removed = time.time() - options.days * _DAY, 0
            with database.read() as session:
                experiments = ended_before(session, limit)
            for experiment in experiments:
                fields = {"experiment": experiment.id, "state": str(experiment.state)}
                if options.dry_run:
                    logger.info("experiment would be removed", extra=fields)
                    continue
                with database.write() as session:
                    is_removed = remove_ended(session, experiment.id, limit)
                if is_removed:
                    logger.info("experiment removed", extra=fields)
                    removed += 1
            if options.dry_run:
                logger.info("would be removed", extra={"experiments": len(experiments)})
                return
            with database.write() as session:
                artifacts = remove_unused_artifacts(session)
            RunDirectories(settings.runs, database).remove_unknown()
            logger.info("removed", extra={"experiments": removed, "artifacts": artifacts})
    except ModnormError as error:
        logger.critical("ended: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
