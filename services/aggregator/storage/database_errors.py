"""Errors of the database as errors of this project."""

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
"""Error codes of SQLite for a disk that is full, broken or read-only."""
_KIND = 0xFF
"""Bits of an SQLite error code that hold its kind; the other bits hold the case."""


@contextmanager
def outages(url: URL, on_fault: OnFault | None) -> Iterator[None]:
    """Raise errors of this project for outages and faults of the database.

    Args:
        url: The database.
        on_fault: Called with a fault of an SQLite file, which no retry fixes.

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
    """Tell whether a retry may help: Postgres stopped, or ended the session or transaction.

    The end of a session whose transaction was idle arrives as an internal error.
    """
    return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated


def _fault_of_file(error: DBAPIError, url: URL) -> ModnormError | None:
    """Return the fault of an SQLite file or its disk; None if there is none."""
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
    """Tell whether a file is not a whole database.

    SQLite calls that a DatabaseError; subclasses are about a statement.
    """
    return type(error) is DatabaseError
