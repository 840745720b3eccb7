import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import NullPool, create_engine, make_url
from sqlmodel import SQLModel, func, select

from modnorm.errors import InvalidInputError, ModnormError, PreconditionError, UnavailableError
from modnorm.search.voting import count_votes
from modnorm.services.aggregator.experiments import phases
from modnorm.services.aggregator.storage import database as database_module
from modnorm.services.aggregator.storage import evaluation_cache
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.evaluation_cache import Evaluation, EvaluationCache
from modnorm.services.aggregator.storage.lookups import StoredText, keep_artifact, load_text
from modnorm.services.aggregator.storage.tables import Artifact
from tests.faults import error_at
from tests.services.aggregator.world import World, on_both_databases


def engine_of(database_url):
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return create_engine(url, poolclass=NullPool)


def differences(database_url):
    """Return the differences between the schema of a database and the tables."""
    with engine_of(database_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, SQLModel.metadata)


@on_both_databases
def test_the_migrated_schema_equals_the_tables(database_url):
    database = Database(database_url)
    database.migrate()
    database.close()
    assert differences(database_url) == []


@on_both_databases
def test_a_repeated_migration_changes_nothing(database_url):
    database = Database(database_url)
    with pytest.raises(PreconditionError, match="has schema none"):
        database.check_schema()
    for _ in range(2):
        database.migrate()
        database.check_schema()
    database.close()


@pytest.fixture
def database(database_url):
    database = Database(database_url)
    database.migrate()
    yield database
    database.close()


@on_both_databases
def test_connections_that_are_all_in_use_are_an_outage(database, monkeypatch):
    monkeypatch.setattr(database._engine.pool, "_timeout", 0.05)

    def read_inside(depth):
        with database.read() as session:
            session.connection()
            if depth:
                read_inside(depth - 1)

    with pytest.raises(UnavailableError, match="in use"):
        read_inside(100)


def artifact(digest, content=b"x"):
    return Artifact(digest=digest, content=content)


@on_both_databases
def test_a_failed_transaction_leaves_nothing(database):
    def fail():
        with database.write() as session:
            session.add(artifact("d"))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as session:
        assert session.get(Artifact, "d") is None


@on_both_databases
def test_text_that_postgres_cannot_store_is_made_storable(database):
    with database.write() as session:
        session.add(artifact("a\0b"))
    with database.read() as session:
        assert session.get(Artifact, "a\ufffdb") is not None
        assert session.get(Artifact, "none\0") is None


@on_both_databases
def test_concurrent_equal_artifacts_are_stored_once(database):
    def keep(_):
        with database.write() as session:
            keep_artifact(session, StoredText("digest", "text"))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(keep, range(12)))
    with database.read() as session:
        assert load_text(session, "digest") == "text"


@on_both_databases
def test_close_waits_for_transactions_and_refuses_new_ones(database):
    inside, go_on = threading.Event(), threading.Event()

    def write():
        with database.write() as session:
            session.add(artifact("d"))
            inside.set()
            go_on.wait()

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write)
        inside.wait()
        closing = threads.submit(database.close)
        assert not closing.done()
        go_on.set()
        writing.result()
        closing.result()
    with pytest.raises(UnavailableError, match="closed"), database.read():
        pass


def test_a_url_that_cannot_be_read_is_not_repeated():
    with pytest.raises(InvalidInputError) as caught:
        Database("postgresql://u@h:hunter2/d")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_broken_connections_are_replaced(postgres_url):
    database = Database(postgres_url)
    number = select(func.pg_backend_pid())
    with database.read() as session, database.read() as other:
        pids = {session.exec(number).one(), other.exec(number).one()}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with database.read() as session, database.read() as other:
        assert not pids & {session.exec(number).one(), other.exec(number).one()}
    database.close()


SILENCE = ("tcp_keepalives_idle", "tcp_user_timeout", "idle_in_transaction_session_timeout")


@pytest.mark.parametrize(
    ("socket", "shown"), [(False, ["10", "30000", "30s"]), (True, ["0", "0", "30s"])]
)
def test_postgres_aborts_idle_transactions(postgres_url, socket, shown):
    """On a Unix socket only transactions time out, since its other end cannot vanish."""
    if socket:
        with psycopg.connect(postgres_url) as connection:
            ((folder,),) = connection.execute("SHOW unix_socket_directories").fetchall()
        url = make_url(postgres_url)
        postgres_url = str(
            url.set(host="", port=None, query={"host": folder, "port": f"{url.port}"})
        )
    database = Database(postgres_url)
    with database.read() as session:
        settings = [session.exec(select(func.current_setting(name))).one() for name in SILENCE]
    database.close()
    assert settings == shown


def test_many_votes_may_take_longer_than_a_transaction_may_idle(postgres_url, monkeypatch):
    def count_slowly(ballots):
        time.sleep(0.6)
        return count_votes(ballots)

    monkeypatch.setattr(database_module, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(phases, "count_votes", count_slowly)
    with closing(Database(postgres_url)) as database:
        database.migrate()
        world = World(database)
        created = world.select(ensemble_sizes=[1, 2, 3, 4])
        world.work(created)
        assert world.state(created) == "SUCCEEDED"


@pytest.mark.parametrize(
    "url", ["postgresql://modnorm@127.0.0.1:1/none", "sqlite:////nonexistent/folder/file.db"]
)
def test_a_database_that_does_not_answer_is_unavailable(url):
    database = Database(url)
    with pytest.raises(UnavailableError, match="database"):
        database.migrate()
    database.close()


def test_a_damaged_file_is_named(tmp_path):
    file = tmp_path / "modnorm.db"
    file.write_bytes(b"no database at all\n" * 300)
    database = Database(f"sqlite:///{file}")
    with pytest.raises(
        PreconditionError, match=f"{file} is damaged: file is not a data"
    ) as caught:
        database.migrate()
    assert "stay valid" in str(caught.value)
    database.close()


def store_much(database):
    with database.write() as session:
        session.add(artifact("large", b"x" * 2**20))


def test_a_locked_file_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setattr("modnorm.services.aggregator.storage.dialects._BUSY_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path / 'modnorm.db'}"
    faults: list[ModnormError] = []
    database, other = Database(url, on_fault=faults.append), Database(url)
    database.migrate()
    with other.write() as session:
        session.connection()
        with pytest.raises(UnavailableError, match="locked"):
            store_much(database)
    store_much(database)
    for one in (database, other):
        one.close()
    assert not faults


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://h:99999/d",
        "postgresql://h:0/d",
        "postgresql://h/d?no_such=1",
    ],
)
def test_a_url_that_no_server_could_have_is_refused(url):
    with error_at("MODNORM_DATABASE_URL"):
        Database(url)


def test_other_software_shares_no_evaluations(tmp_path, monkeypatch):
    evaluation = Evaluation({"answers_done": 1}, None, None)
    EvaluationCache(tmp_path).add({"key": (evaluation, b"sheet")})
    assert EvaluationCache(tmp_path).sheets(["key"]) == {"key": b"sheet"}
    monkeypatch.setattr(evaluation_cache, "version", lambda _: "another")
    assert not EvaluationCache(tmp_path).sheets(["key"])


def test_evaluations_are_shared_once_another_process_has_left_their_file(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation_cache, "_BUSY_SECONDS", 0.0)
    cache, evaluation = EvaluationCache(tmp_path), Evaluation({"metric": 0.5}, None, None)
    with closing(sqlite3.connect(cache._path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        cache.add({"key": (evaluation, b"sheet")})
    cache.add({"key": (evaluation, b"sheet")})
    assert cache.sheets(["key"]) == {"key": b"sheet"}
