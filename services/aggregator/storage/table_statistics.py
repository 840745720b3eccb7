"""Bulk inserts, and new statistics for the tables that grew.

Postgres keeps plans from when a table was small, and they read all rows of a large table.
`ANALYZE` runs in a separate transaction after the insert. It holds its lock to the end of its
transaction, and meanwhile others that analyse the table wait.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import islice

from sqlalchemy import Engine, insert
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, SQLModel

from modnorm.services.aggregator.storage.dialects import analyse

_GROWN = "tables that have grown"
_ROWS_AT_A_TIME = 1_000

logger = logging.getLogger(__name__)


def insert_rows(
    session: Session, table: type[SQLModel], rows: Iterable[Mapping[str, object]]
) -> None:
    """Store any number of rows of one table in bounded memory."""
    stored, remaining = 0, iter(rows)
    while batch := list(islice(remaining, _ROWS_AT_A_TIME)):
        session.execute(insert(table), batch)
        stored += len(batch)
    if stored >= _ROWS_AT_A_TIME:
        session.info.setdefault(_GROWN, set()).add(table.__tablename__)


def analyse_grown(engine: Engine, session: Session) -> None:
    """Analyse the tables that grew in a committed transaction.

    Errors are only logged: the rows are stored, and Postgres analyses the table itself later.
    """
    for table in sorted(session.info.pop(_GROWN, ())):
        try:
            analyse(engine, table)
        except SQLAlchemyError as error:
            logger.warning("table %s was not analysed: %s", table, error)
