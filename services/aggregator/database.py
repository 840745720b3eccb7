"""The database behind the stores: SQLite in one file, or Postgres."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from types import MappingProxyType
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from services.aggregator.growth import analyse_grown
from services.aggregator.outages import OnFault, outages

if TYPE_CHECKING:
    from psycopg import Connection as PostgresConnection

_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_SECONDS = 30
_CONNECTION: Mapping[str, int] = MappingProxyType(
    {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
    }
)
"""Of Postgres: a host that vanishes without a word is given up after 30 seconds (the last is in
milliseconds)."""
IDLE_SECONDS = 30.0
"""A transaction whose next statement takes longer to come is undone by Postgres: who began it has
stopped or vanished, and all others wait for its locks. Half a lease, so that their workers keep
their jobs. Nothing may compute for as long between two statements: reading 500 answer sheets of
1,319 rows takes 1.4 s in all, storing 100,000 candidates 3 s in all, a migration 0.1 s."""
_REST_SECONDS = 1.0
"""A connection that was not used for as long is asked whether it still stands."""
_RESTS = "rests since"
_MIGRATION_LOCK = 0x6D6F646E6F726D
"""Key of the advisory lock that lets one aggregator migrate at a time ("modnorm")."""


class Database:
    """Transactions on SQLite or Postgres, with the same meaning on both.

    A write transaction sees everything committed before it got its locks: on SQLite it takes the
    one write lock at its start, on Postgres it locks the rows that it read `FOR UPDATE`.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/DATABASE`.
        idle_seconds: How long Postgres waits for the next statement of a transaction.
        on_fault: Hears, in any thread, of faults of an SQLite file that no further try mends: its
            disk is full or broken, or it is damaged.

    Raises:
        InvalidInputError: the URL is of neither kind.
    """

    def __init__(
        self,
        url: str,
        *,
        idle_seconds: float = IDLE_SECONDS,
        on_fault: OnFault | None = None,
    ) -> None:
        self._engine = _open_engine(_parse_url(url), idle_seconds)
        self._writer = self._engine.execution_options(modnorm_write=True)
        self._on_fault = on_fault
        self._idle = threading.Condition()
        self._transactions = 0
        self._closed = False

    def migrate(self) -> None:
        """Bring the schema to the newest revision; several processes may do so at once.

        Raises:
            PreconditionError: a newer version has migrated it, or its file is damaged.
            UnavailableError: the database cannot be reached.
        """
        config = _config()
        with self._transaction(), self._writer.begin() as connection:
            if connection.dialect.name == "postgresql":
                lock = text("SELECT pg_advisory_xact_lock(:key)")
                connection.execute(lock, {"key": _MIGRATION_LOCK})
            config.attributes["connection"] = connection
            _require_known(_revision(connection))
            command.upgrade(config, "head")

    def check_schema(self) -> None:
        """Make sure that the schema is the one that this code was written for.

        Raises:
            PreconditionError: it is not; whoever migrates has not done so yet.
            UnavailableError: the database cannot be reached.
        """
        with self._transaction(), self._engine.connect() as connection:
            found = _revision(connection)
        _require_known(found)
        needed = _scripts().get_current_head()
        if found != needed:
            raise PreconditionError(
                f"the database has schema {found or 'none'}, this version needs {needed}",
                field="MODNORM_DATABASE_URL",
                remedy="run `python -m services.aggregator.migrate` of the same version",
            )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a transaction that only reads.

        Raises:
            UnavailableError: the database cannot be reached.
        """
        with self._transaction(), Session(self._engine) as session:
            yield session
            session.expunge_all()
            # At a rollback the driver would forget the statements that it has prepared.
            session.commit()

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a transaction that commits at the end, or rolls back on any error.

        Raises:
            UnavailableError: the database cannot be reached, or undid the transaction in favour
                of another one: the caller may try again.
        """
        with self._transaction(), Session(self._writer, expire_on_commit=False) as session:
            with session.begin():
                yield session
            analyse_grown(self._engine, session)

    def close(self) -> None:
        """Wait for transactions in other threads, let none begin, close all connections."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._transactions == 0)
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise UnavailableError("the database is closed")
            self._transactions += 1
        try:
            with outages(self._engine.url, self._on_fault):
                yield
        finally:
            with self._idle:
                self._transactions -= 1
                self._idle.notify_all()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _revision(connection: Connection) -> str | None:
    """Return the revision of a database's schema; None of an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def _require_known(revision: str | None) -> None:
    """Refuse a schema that is newer than this code.

    Raises:
        PreconditionError: it is.
    """
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision is not None and revision not in known:
        raise PreconditionError(
            f"the database has schema {revision}, which this version does not know",
            field="MODNORM_DATABASE_URL",
            remedy="start the version that migrated it, or restore a backup from before",
        )


def _parse_url(text_url: str) -> URL:
    try:
        url = make_url(text_url)
    except (ArgumentError, ValueError):  # which repeat a part of it
        raise _bad_url("not a database URL") from None
    backend = url.get_backend_name()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database not in {None, "", ":memory:"}:
        return url.set(drivername="sqlite+pysqlite")
    raise _bad_url("neither an SQLite file nor Postgres")


def _bad_url(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="MODNORM_DATABASE_URL",
        remedy="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
    )


def _open_engine(url: URL, idle_seconds: float) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # The connection that was used last knows the statements that are executed over and over.
    engine = create_engine(url, pool_use_lifo=True, connect_args=dict(_CONNECTION))
    event.listen(engine, "connect", partial(_prepare_postgres, _session_settings(idle_seconds)))
    event.listen(engine, "checkin", _rest)
    event.listen(engine, "checkout", _check_rested)
    return engine


def _rest(_connection: "PostgresConnection | None", record: ConnectionPoolEntry) -> None:
    record.info[_RESTS] = time.monotonic()


def _check_rested(
    connection: "PostgresConnection", record: ConnectionPoolEntry, _borrowed: object
) -> None:
    """Have a connection that Postgres closed while it rested replaced, with all older ones.

    A busy aggregator spares a question a transaction, and learns of a restart by the transaction
    that it interrupts.

    Raises:
        InvalidatePoolError: it is closed.
    """
    if time.monotonic() - record.info.get(_RESTS, math.inf) < _REST_SECONDS:
        return
    try:
        connection.execute("SELECT 1")
        connection.commit()
    except connection.Error as error:
        raise InvalidatePoolError from error


def _session_settings(idle_seconds: float) -> Mapping[str, float]:
    """Return what sessions set in Postgres, times in milliseconds or, of keepalives, seconds.

    Plans find rows by index: by default, disks that turn are taken into account, and dozens of
    jobs among thousands are updated by reading all of them, which takes twice the time.

    Postgres gives up a host that vanishes when that gives up Postgres, not after two hours; a
    process that was only stopped still acknowledges, and loses its transaction by being idle. On
    Unix sockets the settings of TCP have no effect.
    """
    return {
        "random_page_cost": 1.1,
        "tcp_keepalives_idle": _CONNECTION["keepalives_idle"],
        "tcp_keepalives_interval": _CONNECTION["keepalives_interval"],
        "tcp_keepalives_count": _CONNECTION["keepalives_count"],
        "tcp_user_timeout": _CONNECTION["tcp_user_timeout"],
        "idle_in_transaction_session_timeout": round(1000 * idle_seconds),
    }


def _prepare_postgres(
    settings: Mapping[str, float], connection: "PostgresConnection", _record: object
) -> None:
    """Set up a session by statements: poolers between here and Postgres refuse start options."""
    connection.autocommit = True  # no transaction that a stopped process would leave idle
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
    connection.autocommit = False


def _prepare_sqlite(connection: SqliteConnection, _record: object) -> None:
    """Let SQLAlchemy begin transactions; wait for readers and writers; check references."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once: a transaction that asks for it late would have to fail."""
    writes = connection.get_execution_options().get("modnorm_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
