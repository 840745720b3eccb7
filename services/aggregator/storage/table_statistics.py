"""Bulk inserts, and fresh statistics for the tables that grew by them.

Postgres keeps plans that it made for a small table, and those read all of a large one. `ANALYZE`
runs in a transaction of its own after the one that stored the rows, because it holds its lock to
the end: other transactions that analyse the table would wait for it.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import islice

from sqlalchemy import Engine, insert
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, SQLModel

from services.aggregator.storage.dialects import analyse

_GROWN = "tables that have grown"
_ROWS_AT_A_TIME = 1_000

logger = logging.getLogger(__name__)


def insert_rows(
    session: Session, table: type[SQLModel], rows: Iterable[Mapping[str, object]]
) -> None:
    """Store any number of rows of one table in bounded memory.

    Args:
        session: The transaction.
        table: The table. Columns without a value get their default.
        rows: Values by column; all rows name the same columns.
    """
    stored, remaining = 0, iter(rows)
    while batch := list(islice(remaining, _ROWS_AT_A_TIME)):
        session.execute(insert(table), batch)
        stored += len(batch)
    if stored >= _ROWS_AT_A_TIME:
        session.info.setdefault(_GROWN, set()).add(table.__tablename__)


def analyse_grown(engine: Engine, session: Session) -> None:
    """Analyse the tables that a committed transaction made grow.

    Errors are logged only: the rows are stored, and Postgres analyses the table later by itself.
    """
    for table in sorted(session.info.pop(_GROWN, ())):
        try:
            analyse(engine, table)
        except SQLAlchemyError as error:
            logger.warning("table %s was not analysed: %s", table, error)
