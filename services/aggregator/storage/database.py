"""Transactions on the database, which is an SQLite file or Postgres, and its errors."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session, SQLModel

import modnorm.services.aggregator.storage.tables  # noqa: F401 - fills the metadata
from modnorm.errors import ModnormError, PreconditionError, UnavailableError
from modnorm.services.aggregator.storage.dialects import (
    WRITES,
    analyse_grown,
    check_start,
    open_engine,
    parse_url,
)
from modnorm.services.aggregator.storage.evaluation_cache import EvaluationCache

OnFault = Callable[[ModnormError], object]

_MIGRATIONS = Path(__file__).parent / "migrations"
IDLE_SECONDS = 30.0
"""Seconds without a statement after which Postgres aborts a transaction: its process was stopped
or vanished, and others wait for its locks. The value is half a lease, so that workers keep their
jobs. No transaction may compute that long between two statements."""
_EVALUATIONS, _TIME = "shared evaluations", "time"
_REMEDY, START_REMEDY = "try again", "start the database, or correct MODNORM_DATABASE_URL"
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
        # Postgres reports the end of a session with an idle transaction as an internal error.
        if not (
            isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
        ):
            raise
        message = " ".join(str(error.orig).split())  # that of psycopg may have several lines
        raise UnavailableError(f"the database did not answer: {message}", remedy=remedy) from error
    except PoolTimeoutError as error:
        raise UnavailableError(
            f"all connections to the database are in use: {error}", remedy=remedy
        ) from error


def _fault_of_file(error: DBAPIError, url: URL) -> ModnormError | None:
    """Return the fault of an SQLite file or its disk; None if there is none."""
    if url.get_backend_name() != "sqlite":
        return None
    if type(error) is DatabaseError:  # its subclasses are about a statement
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


class Database:
    """Transactions with equal semantics on SQLite and Postgres.

    A write transaction sees all changes that were committed before it got its locks. On SQLite it
    takes the one write lock at its start. On Postgres it locks rows with `FOR UPDATE`.
    """

    def __init__(
        self,
        url: str,
        *,
        on_fault: OnFault | None = None,
        evaluations: EvaluationCache | None = None,
    ) -> None:
        self.evaluations = evaluations
        self._engine = open_engine(parse_url(url), IDLE_SECONDS)
        self._writer = self._engine.execution_options(**{WRITES: True})
        self._on_fault = on_fault
        self._idle = threading.Condition()
        self._transactions = 0
        self._closed = False

    def migrate(self) -> None:
        """Migrate the schema to the newest revision; one process at a time.

        An empty database gets all tables at once, an older schema is upgraded by its revisions.
        """
        config = _config()
        with self._transaction(START_REMEDY):
            check_start(self._engine)
        with self._transaction(START_REMEDY), self._writer.begin() as connection:
            config.attributes["connection"] = connection
            revision = _revision(connection)
            _require_known(revision)
            if revision is None:
                SQLModel.metadata.create_all(connection)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")

    def check_schema(self) -> None:
        """Check that the schema has the revision of this code."""
        with self._transaction(START_REMEDY):
            check_start(self._engine)
        with self._transaction(START_REMEDY), self._engine.connect() as connection:
            revision = _revision(connection)
        _require_known(revision)
        needed = _scripts().get_current_head()
        if revision != needed:
            raise PreconditionError(
                f"the database has schema {revision or 'none'}, this version needs {needed}",
                field="MODNORM_DATABASE_URL",
                remedy="start the aggregator of this version, which migrates it",
            )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a transaction that only reads."""
        with self._transaction(), Session(self._engine, expire_on_commit=False) as session:
            yield session
            # A rollback would discard the driver's prepared statements.
            session.commit()

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a transaction that commits at the end, or rolls back on any error."""
        with self._transaction(), Session(self._writer, expire_on_commit=False) as session:
            session.info[_EVALUATIONS] = self.evaluations
            with session.begin():
                yield session
            analyse_grown(self._engine, session)

    def close(self) -> None:
        """Refuse new transactions, wait for those in other threads, close all connections."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._transactions == 0)
        self._engine.dispose()
        if self.evaluations is not None:
            self.evaluations.close()

    @contextmanager
    def _transaction(self, remedy: str = _REMEDY) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise UnavailableError("the database is closed")
            self._transactions += 1
        try:
            with outages(self._engine.url, self._on_fault, remedy):
                yield
        finally:
            with self._idle:
                self._transactions -= 1
                self._idle.notify_all()


def transaction_time(session: Session) -> float:
    """Return the time of a write transaction, for all that it stores: that of the first call.

    Call it once the experiment is locked: then later events of the experiment have later times.
    """
    if _TIME not in session.info:
        session.info[_TIME] = time.time()
    return cast("float", session.info[_TIME])


def evaluation_cache(session: Session) -> EvaluationCache | None:
    """Return the evaluations that the database of a write transaction shares with others."""
    return cast("EvaluationCache | None", session.info[_EVALUATIONS])


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _revision(connection: Connection) -> str | None:
    """Return the revision of a database's schema; None for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


def _require_known(revision: str | None) -> None:
    """Check that a schema is not newer than this code."""
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision is not None and revision not in known:
        raise PreconditionError(
            f"the database has schema {revision}, which this version does not know",
            field="MODNORM_DATABASE_URL",
            remedy="start the version that migrated it, or restore a backup from before",
        )
