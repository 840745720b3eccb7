"""Removes old experiments: `python -m modnorm.services.aggregator.remove_old --days 90`."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from modnorm.errors import ModnormError
from modnorm.services.aggregator.experiments.removal import (
    ended_before,
    remove_ended,
    remove_unused_artifacts,
)
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.common.logging import configure_logging
from modnorm.services.common.service_process import read_settings
from modnorm.services.common.settings import AggregatorSettings

_DAY = 86_400.0

logger = logging.getLogger(__name__)


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
        with closing(Database(settings.database_url)) as database:
            database.check_schema()
            limit = time.time() - options.days * _DAY
            _remove(database, settings.runs, limit, dry_run=options.dry_run)
    except ModnormError as error:
        logger.critical("ended: %s", error)
        sys.exit(1)


def _remove(database: Database, runs: Path, limit: float, *, dry_run: bool) -> None:
    with database.read() as session:
        experiments = ended_before(session, limit)
    removed = 0
    for experiment in experiments:
        fields = {"experiment": experiment.id, "state": str(experiment.state)}
        if dry_run:
            logger.info("experiment would be removed", extra=fields)
            continue
        with database.write() as session:
            is_removed = remove_ended(session, experiment.id, limit)
        if is_removed:
            logger.info("experiment removed", extra=fields)
            removed += 1
    if dry_run:
        logger.info("would be removed", extra={"experiments": len(experiments)})
        return
    with database.write() as session:
        artifacts = remove_unused_artifacts(session)
    RunDirectories(runs, database).remove_unknown()
    logger.info("removed", extra={"experiments": removed, "artifacts": artifacts})


if __name__ == "__main__":
    main()
