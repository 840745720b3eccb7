"""Tables that have grown by much, which Postgres looks at anew.

Plans that were made for a small table are kept, and read all of one that has grown. `ANALYZE`
follows the transaction that stored the rows, in one of its own: it holds its lock until the end of
its transaction, and whoever else looks at the table so waits for that.
"""

import logging

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

_GROWN = "tables that have grown"
_WAIT = "SET LOCAL lock_timeout = '2s'"
"""More than the second after which Postgres gives up its own look at a table for one who waits."""

logger = logging.getLogger(__name__)


def note_growth(session: Session, table: str) -> None:
    """Have a table looked at when the transaction has committed."""
    grown: set[str] = session.info.setdefault(_GROWN, set())
    grown.add(table)


def analyse_grown(engine: Engine, session: Session) -> None:
    """Look at the tables that a transaction, committed by now, made grow.

    What goes wrong is logged and no error: rows are stored, and Postgres looks at the table by
    itself before long.
    """
    for table in sorted(session.info.pop(_GROWN, ())):
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(_WAIT)
                connection.exec_driver_sql(f"ANALYZE {table}")
        except SQLAlchemyError as error:
            logger.warning("table %s was not analysed: %s", table, error)
