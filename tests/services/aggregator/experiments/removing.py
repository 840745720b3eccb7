"""Removal as the program does it, and all rows of a database."""

from sqlmodel import SQLModel, select

from modnorm.services.aggregator.remove_old import (
    ended_before,
    remove_ended,
    remove_unused_artifacts,
)

DAY = 86_400.0


def rows(database):
    """Return all rows of all tables."""
    with database.read() as session:
        return {
            (table.name, tuple(row))
            for table in SQLModel.metadata.sorted_tables
            for row in session.execute(select(*table.columns))
        }


def remove(database, limit):
    """Remove as the program does; return the ids."""
    with database.read() as session:
        old = [one.id for one in ended_before(session, limit)]
    for experiment_id in old:
        with database.write() as session:
            remove_ended(session, experiment_id, limit)
    with database.write() as session:
        remove_unused_artifacts(session)
    return old
