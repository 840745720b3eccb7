"""The differences between SQLite and Postgres: connections, locks, conflicts and statistics."""

import math
import time
from collections.abc import Mapping
from functools import partial
from sqlite3 import Connection as SqliteConnection
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session, SQLModel

from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from psycopg import Connection as PostgresConnection

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
"""Options of Postgres: a host that vanishes is given up after 30 seconds. The last option is in
milliseconds."""
_REST_SECONDS = 1.0
"""A connection that was idle for longer is tested before its next use."""
_RESTS = "rests since"
_MIGRATION_LOCK = 0x6D6F646E6F726D
"""Key of the advisory lock that lets one aggregator migrate at a time ("modnorm")."""
_WRITES = "modnorm_write"
"""Option of an engine whose transactions write."""
_ANALYSE_WAIT = "SET LOCAL lock_timeout = '2s'"
"""Longer than the second after which Postgres's own `ANALYZE` gives way to a waiting one."""


def writing(engine: Engine) -> Engine:
    """Return the engine for transactions that write: on SQLite they take the lock at once."""
    return engine.execution_options(**{_WRITES: True})


def lock_migrations(connection: Connection) -> None:
    """Wait until no other process migrates; on SQLite the transaction has the only lock."""
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(:key)")
        connection.execute(lock, {"key": _MIGRATION_LOCK})


def insert_if_absent(
    session: Session, table: type[SQLModel], values: Mapping[str, object]
) -> None:
    """Store a row, unless a row with its key is stored, also by a transaction at the same time."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    insert = sqlite.insert if on_sqlite else postgresql.insert
    session.exec(insert(table).values(values).on_conflict_do_nothing())


def analyse(engine: Engine, table: str) -> None:
    """Have Postgres plan for the present size of a table; SQLite keeps no such plans."""
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql(_ANALYSE_WAIT)
            connection.exec_driver_sql(f"ANALYZE {table}")


def parse_url(text_url: str) -> URL:
    """Return the URL of a database, with its driver.

    Raises:
        InvalidInputError: the URL is of neither kind.
    """
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


def open_engine(url: URL, idle_seconds: float) -> Engine:
    """Return an engine whose connections are set up for this service.

    Args:
        url: The database.
        idle_seconds: How long Postgres waits for the next statement of a transaction.
    """
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # The connection that was used last has prepared the frequent statements.
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
    """Replace a connection that Postgres closed while it was idle, with all older ones.

    A busy aggregator saves a round trip a transaction, and learns of a restart by an error.

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
    """Return the settings of sessions in Postgres, in milliseconds, or seconds for keepalives.

    Plans find rows by index. The default cost of random reads is that of rotating disks, for which
    dozens of jobs among thousands are updated by reading all of them, in twice the time.

    Postgres gives up a vanished host as soon as the host would give up Postgres, not after two
    hours. A stopped process still acknowledges, and loses its transaction by being idle. On Unix
    sockets the settings of TCP have no effect.
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
    """Set up a session by statements, because connection poolers refuse start options."""
    connection.autocommit = True  # so that a stopped process leaves no transaction idle
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
    connection.autocommit = False


def _prepare_sqlite(connection: SqliteConnection, _record: object) -> None:
    """Let SQLAlchemy begin transactions, wait for other processes, and check foreign keys."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once: a transaction that asks for it late would have to fail."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
