"""Conversion of the database's errors to this project's errors."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from modnorm.errors import ModnormError, PreconditionError, UnavailableError

OnFault = Callable[[ModnormError], object]

_DISK_FAULTS = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)
"""Error codes of SQLite for a disk that is full, broken or read-only."""
_KIND = 0xFF
"""Bits of an SQLite error code with the primary code; the other bits extend it."""


@contextmanager
def outages(url: URL, on_fault: OnFault | None, remedy: str) -> Iterator[None]:
    """Convert outages and faults of the database inside the context."""
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
            f"the database did not answer: {_on_one_line(error)}", remedy=remedy
        ) from error
    except PoolTimeoutError as error:
        raise UnavailableError(
            f"all connections to the database are in use: {error}", remedy=remedy
        ) from error


def _on_one_line(error: DBAPIError) -> str:
    """Return the driver's message; that of psycopg may have several indented lines."""
    return " ".join(str(error.orig).split())


def _is_outage(error: DBAPIError) -> bool:
    """Return whether a retry may help: Postgres stopped, or ended the session or transaction.

    Postgres reports the end of a session with an idle transaction as an internal error.
    """
    return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated


def _fault_of_file(error: DBAPIError, url: URL) -> ModnormError | None:
    """Return the fault of an SQLite file or its disk; None if there is none."""
    if url.get_backend_name() != "sqlite":
        return None
    if _is_damage(error):
        return PreconditionError(
            f"the database {url.database} is damaged: {error.orig}",
            remedy="restore a copy of it, or move it away and start again, which repeats "
            "unfinished work; written results and reports stay valid",
        )
    if getattr(error.orig, "sqlite_errorcode", 0) & _KIND in _DISK_FAULTS:
        return UnavailableError(
            f"the database {url.database} cannot be used: {error.orig}",
            remedy="free disk space or fix the disk; then run the same command again, "
            "which does not repeat stored work",
        )
    return None


def _is_damage(error: DBAPIError) -> bool:
    """Return whether the file is not an intact database.

    SQLite then raises DatabaseError itself; its subclasses are about a statement.
    """
    return type(error) is DatabaseError
