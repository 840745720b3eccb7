"""The differences between SQLite and Postgres: connections, locks, conflicts, statistics."""

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from sqlite3 import SQLITE_BUSY, OperationalError
from sqlite3 import Connection as SqliteConnection
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, event, extract, func, insert, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlmodel import Session, SQLModel, select
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.locks import require_locks

if TYPE_CHECKING:
    from psycopg import Connection as PostgresConnection


_STORED = "number of stored rows by table"
_ROWS_AT_A_TIME = 1_000

logger = logging.getLogger(__name__)


def insert_rows(
    session: Session, table: type[SQLModel], rows: Iterable[Mapping[str, object]]
) -> None:
    """Store any number of rows of one table in bounded memory."""
    # The insert of a mapped class would make each mapping an object's state first.
    statement = insert(SQLModel.metadata.tables[str(table.__tablename__)])
    stored, remaining = session.info.setdefault(_STORED, Counter()), iter(rows)
    while batch := list(islice(remaining, _ROWS_AT_A_TIME)):
        session.execute(statement, batch)
        stored[table.__tablename__] += len(batch)


def analyse_grown(engine: Engine, session: Session) -> None:
    """Update Postgres's statistics of the tables that grew in a committed transaction.

    Errors are only logged: the rows are stored, and Postgres analyses the table itself later.
    """
    for table, count in sorted(session.info.pop(_STORED, {}).items()):
        try:
            if engine.dialect.name == "postgresql" and count >= _ROWS_AT_A_TIME:
                with engine.begin() as connection:
                    connection.exec_driver_sql(_ANALYSE_WAIT)
                    connection.exec_driver_sql(f"ANALYZE {table}")
        except SQLAlchemyError as error:
            logger.warning("table %s was not analysed: %s", table, error)


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
"""Options of Postgres: a vanished host is given up after 30 seconds. The last option is in
milliseconds."""
_SESSION_CHECKS = 5
WRITES = "modnorm_write"
"""Option of an engine whose transactions write: on SQLite they take the lock at their start."""
_POSTGRES_TIME = select(extract("epoch", func.clock_timestamp()))
_ANALYSE_WAIT = "SET LOCAL lock_timeout = '2s'"
"""Timeout above one second, after which Postgres's own `ANALYZE` yields to a waiting one."""


def lock_table(session: Session, table: type[SQLModel]) -> None:
    """Wait for all transactions that write to a table, and keep others from it.

    On SQLite a write transaction already has the lock.
    """
    if session.get_bind().dialect.name == "postgresql":
        statement = f"LOCK TABLE {table.__tablename__} IN SHARE ROW EXCLUSIVE MODE"
        session.connection().exec_driver_sql(statement)


def database_time(session: Session) -> float:
    """Return seconds since the epoch by the database's clock.

    This is the clock of Postgres's host. SQLite has only the clock of its process.
    """
    if session.get_bind().dialect.name == "sqlite":
        return time.time()
    return float(session.exec(_POSTGRES_TIME).one())


def insert_if_absent(
    session: Session, table: type[SQLModel], values: Mapping[str, object]
) -> None:
    """Store a row unless a row with its key exists or is stored concurrently."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    insert = sqlite.insert if on_sqlite else postgresql.insert
    session.exec(insert(table).values(values).on_conflict_do_nothing())


def parse_url(text_url: str) -> URL:
    """Return the URL of a database, with its driver."""
    try:
        url = make_url(re.sub("^postgres(?=[:+])", "postgresql", text_url))
    except (ArgumentError, ValueError):  # their messages could contain the password
        raise _bad_url("not a database URL") from None
    backend = url.get_backend_name()
    if backend == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
        _check_options(url)
        return url
    if backend == "sqlite" and url.database not in {None, "", ":memory:"}:
        return url.set(drivername="sqlite+pysqlite")
    raise _bad_url("neither an SQLite file nor Postgres")


def _check_options(url: URL) -> None:
    """Refuse a port or an option that no server could have."""
    from psycopg import ProgrammingError  # noqa: PLC0415 - SQLite needs no driver
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - as above

    try:
        _, options = url.get_dialect()().create_connect_args(url)
        make_conninfo(**options)
    except (ArgumentError, ProgrammingError, ValueError):
        raise _bad_url("an option of the URL is none of Postgres") from None
    if url.port is not None and not 0 < url.port < 2**16:
        raise _bad_url(f"{url.port} is no port")


def check_start(engine: Engine) -> None:
    """Refuse what breaks transactions: a file system without locks, a pool of transactions.

    A pooler such as PgBouncer may give each transaction another session of Postgres. Then settings
    of a session and prepared statements are lost.
    """
    if engine.dialect.name == "sqlite":
        with suppress(OSError):  # SQLite explains why a directory cannot be used
            require_locks(Path(engine.url.database or "").parent, "MODNORM_DATABASE_URL")
        return
    with engine.connect() as one, engine.connect() as other:
        for _ in range(_SESSION_CHECKS):
            sessions = set()
            for connection in (one, other):
                sessions.add(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar())
                connection.commit()
            if len(sessions) == 1:
                raise PreconditionError(
                    "a pooler in transaction mode, such as PgBouncer, is between this service and "
                    "Postgres",
                    field="MODNORM_DATABASE_URL",
                    remedy="connect to Postgres itself, or set pool_mode = session",
                )


def _bad_url(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="MODNORM_DATABASE_URL",
        remedy="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
    )


def open_engine(url: URL, idle_seconds: float) -> Engine:
    """Return an engine with connections that are configured for this service."""
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # Last in, first out: the last used connection has prepared the frequent statements.
    engine = create_engine(
        url, pool_use_lifo=True, pool_pre_ping=True, connect_args=dict(_CONNECTION)
    )
    event.listen(engine, "connect", partial(_prepare_postgres, idle_seconds))
    return engine


def _prepare_postgres(
    idle_seconds: float, connection: "PostgresConnection", _record: object
) -> None:
    """Configure a session by statements, because connection poolers refuse startup options.

    A low cost of random reads makes plans use indexes. With the default, which fits rotating
    disks, an update of dozens of jobs reads thousands and takes twice as long.

    Postgres gives up a vanished client after as long as a client gives up Postgres, not after two
    hours. A stopped process still acknowledges packets; its idle transaction is aborted. The TCP
    settings have no effect on Unix sockets.
    """
    settings = {
        "random_page_cost": 1.1,
        "tcp_keepalives_idle": _CONNECTION["keepalives_idle"],
        "tcp_keepalives_interval": _CONNECTION["keepalives_interval"],
        "tcp_keepalives_count": _CONNECTION["keepalives_count"],
        "tcp_user_timeout": _CONNECTION["tcp_user_timeout"],
        "idle_in_transaction_session_timeout": round(1000 * idle_seconds),
    }
    connection.autocommit = True  # a stopped process must not leave an idle transaction here
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
    connection.autocommit = False


def _prepare_sqlite(connection: SqliteConnection, _record: object) -> None:
    """Configure SQLite: explicit transactions, write-ahead log, foreign keys."""
    connection.isolation_level = None
    retrying = Retrying(  # SQLite does not wait for others that switch a new file too
        retry=retry_if_exception(
            lambda error: (
                isinstance(error, OperationalError) and error.sqlite_errorcode == SQLITE_BUSY
            )
        ),
        wait=wait_random(0, 0.1),
        stop=stop_after_delay(_BUSY_SECONDS),
        reraise=True,
    )
    retrying(connection.execute, "PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at the start, since a later request for it could fail."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
