"""What is stored under an older schema is found under the newest."""

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, make_url, text

from services.aggregator import database as module
from services.aggregator.codec import StoredAnswer, pack_answers
from services.aggregator.database import Database

EXPERIMENT = {
    "request_id": "request",
    "spec_json": '{"model": "m"}',
    "spec_digest": "s",
    "state": "VOTING",
    "error": "",
    "create_time": 1.0,
    "model_digest": "m",
    "scorer": "gsm8k-v1",
    "max_tokens": 8,
    "needs_profile": False,
    "selection_digest": "a",
    "heldout_digest": "b",
    "selection_rows": 1,
    "heldout_rows": 1,
    "examples_done": 0,
    "examples_total": 0,
    "last_cursor": 0,
}
CANDIDATE = {"noise": "n", "seed": 1, "method": "base", "radius": 0.0, "scale_map_digest": "d"}
JOB = {
    "attempts": 1,
    "token": 1,
    "worker": "w",
    "answers_done": 0,
    "error": "",
    "tokens": 0,
    "switch_seconds": 0.0,
    "generate_seconds": 0.0,
    "score_seconds": 0.0,
    "environment": "{}",
}


def insert(connection, table, **values):
    names = ", ".join(f'"{name}"' for name in values)
    places = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)


def fill(connection, experiment_id, jobs):
    """Store an experiment and its jobs, given as split and state."""
    names = {"id": experiment_id, "request_id": experiment_id}
    insert(connection, "experiments", **{**EXPERIMENT, **names})
    for index, (split, state) in enumerate(jobs):
        insert(connection, "candidates", experiment_id=experiment_id, index=index, **CANDIDATE)
        where = {"experiment_id": experiment_id, "candidate": index, "split": split}
        insert(connection, "jobs", id=f"{experiment_id}/{index}", state=state, **where, **JOB)


@pytest.fixture
def first_schema(database_url):
    """A connection to a database that the first schema was made in."""
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(module._MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def test_jobs_of_the_present_phase_are_counted(first_schema, database_url):
    selection = [("selection", state) for state in ("done", "done", "failed", "pending")]
    fill(first_schema, "selecting", selection)
    fill(first_schema, "voting", [*selection, ("heldout", "done"), ("heldout", "leased")])
    fill(first_schema, "pending", [])
    first_schema.commit()
    database = Database(database_url)
    database.migrate()
    query = text("SELECT id, jobs_total, jobs_done, jobs_failed FROM experiments ORDER BY id")
    with database.read() as session:
        counted = [tuple(row) for row in session.execute(query)]
    database.close()
    assert counted == [("pending", 0, 0, 0), ("selecting", 4, 2, 1), ("voting", 2, 1, 0)]


def test_what_was_there_belongs_to_the_default_tenant(first_schema, database_url):
    fill(first_schema, "old", [])
    first_schema.commit()
    database = Database(database_url)
    database.migrate()
    query = text("SELECT tenant, request_id, request_key FROM experiments")
    with database.read() as session:
        assert [tuple(row) for row in session.execute(query)] == [("default", "old", "old")]
    database.close()


def test_right_answers_of_stored_jobs_are_counted(first_schema, database_url):
    fill(first_schema, "old", [("selection", "done"), ("selection", "pending")])
    answers = [StoredAnswer(i, "", 0.0, "1", i < 2, 1, truncated=False) for i in range(3)]
    insert(first_schema, "answers", job_id="old/0", content=pack_answers(answers))
    first_schema.commit()
    database = Database(database_url)
    database.migrate()
    with database.read() as session:
        counted = session.execute(text("SELECT id, correct FROM jobs ORDER BY id")).all()
    database.close()
    assert [tuple(row) for row in counted] == [("old/0", 2), ("old/1", 0)]


def rows(connection):
    """Return all rows of all tables that hold experiments, by table and key."""
    inspector = inspect(connection)
    found = {}
    for table in set(inspector.get_table_names()) - {"alembic_version"}:
        keys = inspector.get_pk_constraint(table)["constrained_columns"]
        for row in connection.execute(text(f"SELECT * FROM {table}")).mappings():
            found[(table, *(row[key] for key in keys))] = dict(row)
    return found


def test_every_row_of_the_first_schema_is_there_in_the_newest(first_schema, database_url):
    jobs = [("selection", "done"), ("selection", "leased"), ("selection", "pending")]
    for name in ("first", "second"):
        fill(first_schema, name, jobs)
    before = rows(first_schema)
    first_schema.commit()
    database = Database(database_url)
    database.migrate()
    with database.read() as session:
        after = rows(session.connection())
    database.close()
    assert len(before) == 2 * (1 + 2 * len(jobs))
    for key, row in before.items():
        kept = {name: after[key][name] for name in row if name in after[key]}
        assert kept == {name: value for name, value in row.items() if name in kept}
        assert len(kept) > len(row) / 2
