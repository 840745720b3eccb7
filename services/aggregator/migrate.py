"""Migrates the database to the newest schema: `python -m modnorm.services.aggregator.migrate`."""

import logging
import sys
from contextlib import closing

from modnorm.errors import ModnormError
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.common.logging import configure_logging
from modnorm.services.common.service_process import read_settings
from modnorm.services.common.settings import DatabaseSettings

logger = logging.getLogger(__name__)


def main() -> None:
    """Migrate the database; several processes may run this concurrently."""
    settings = read_settings(DatabaseSettings)
    configure_logging(settings.log_level)
    try:
        with closing(Database(settings.database_url)) as database:
            database.migrate()
    except ModnormError as error:
        logger.critical("ended: %s", error)
        sys.exit(1)
    logger.info("the schema is up to date")


if __name__ == "__main__":
    main()
