"""What goes wrong with a database, as errors of this project."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from modnorm.errors import ModnormError, PreconditionError, UnavailableError

OnFault = Callable[[ModnormError], object]

_DISK_FAULTS = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""What SQLite says of a disk that is full or broken, or that may not be written any more."""
_KIND = 0xFF
"""Bits of an error code of SQLite's that tell its kind; the others tell the case."""


@contextmanager
def outages(url: URL, on_fault: OnFault | None) -> Iterator[None]:
    """Raise errors of this project in place of a database's, where those are none of the code.

    Args:
        url: The database.
        on_fault: Hears of what is wrong with an SQLite file, which no further try mends.

    Raises:
        UnavailableError: the database cannot be used now.
        PreconditionError: its file is damaged.
    """
    try:
        yield
    except DBAPIError as error:
        fault = _fault_of_file(error, url)
        if fault is not None:
            if on_fault is not None:
                on_fault(fault)
            raise fault from error
        if not _is_outage(error):
            raise
        raise UnavailableError(
            f"the database did not answer: {error.orig}", remedy="try again"
        ) from error
    except PoolTimeoutError as error:
        raise UnavailableError(
            f"all connections to the database are in use: {error}", remedy="try again"
        ) from error


def _is_outage(error: DBAPIError) -> bool:
    """Whether trying again may help: Postgres went, or ended the session or the transaction.

    The end of a session whose transaction was idle arrives as an internal error.
    """
    return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated


def _fault_of_file(error: DBAPIError, url: URL) -> ModnormError | None:
    """Return what is wrong with the file of an SQLite database, or its disk; None if nothing."""
    if url.get_backend_name() != "sqlite":
        return None
    if _is_damage(error):
        return PreconditionError(
            f"the database {url.database} is damaged: {error.orig}",
            remedy="put back a copy of it, or move it away and start again, which repeats "
            "what was not finished; results and reports that were written still hold",
        )
    if getattr(error.orig, "sqlite_errorcode", 0) & _KIND in _DISK_FAULTS:
        return UnavailableError(
            f"the database {url.database} cannot be used: {error.orig}",
            remedy="make room or mend the disk; then the same command may be given again, "
            "and what is stored is not done twice",
        )
    return None


def _is_damage(error: DBAPIError) -> bool:
    """Whether a file is no database, or not a whole one.

    SQLite calls that a DatabaseError; its subclasses tell what a statement did wrong.
    """
    return type(error) is DatabaseError
