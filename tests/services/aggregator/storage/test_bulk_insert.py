"""Bulk inserts: any text and number is stored, and large tables are analysed."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, delete, select
from sqlmodel import Session, SQLModel

from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Job

JOBS = Job.metadata.tables["jobs"]
COLUMNS = ("id", "experiment_id", "candidate", "split", "metric", "tokens", "environment")

ODD = st.sampled_from(
    ["", "NULL", '"', "\\", "{}", "a,b", "{a}", "'", "\\x00", " a ", "é\n", "%s"]
)
TEXTS = ODD | st.text(st.characters(codec="utf-8"), max_size=8)
METRICS = st.none() | st.floats(allow_nan=False)
ROWS = st.lists(
    st.tuples(TEXTS, METRICS, st.integers(-(2**63), 2**63 - 1), TEXTS),
    max_size=5,
    unique_by=lambda row: row[0].replace("\0", "\ufffd"),
)


@pytest.fixture
def engine(database_url) -> Iterator[Engine]:
    """The tables on both databases, without foreign keys."""
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        for table in ("experiments", "candidates", "jobs"):
            SQLModel.metadata.tables[table].create(connection)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET session_replication_role = replica")
    yield engine
    engine.dispose()


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(rows=ROWS, worker=TEXTS)
@example(rows=[("\0", 1.0, 0, "\0"), ("b", None, 0, "")], worker="\0")
def test_written_rows_are_read_back(engine, rows, worker) -> None:
    jobs = [
        dict(zip(COLUMNS, (key, "e", place, Split.SELECTION, metric, tokens, text), strict=True))
        for place, (key, metric, tokens, text) in enumerate(rows)
    ]
    with Session(engine) as session, session.begin():
        if session.connection().dialect.name == "postgresql":
            session.connection().exec_driver_sql("SET session_replication_role = replica")
        session.connection().execute(delete(JOBS))
        insert_rows(session, Job, jobs)
        for job in session.execute(select(Job)).scalars().all():
            if job.candidate % 2 == 0:
                job.state, job.worker, job.metric = JobState.DONE, worker, job.candidate / 2
    with Session(engine) as session:
        found = {row.candidate: row for row in session.execute(select(Job)).scalars()}
    assert sorted(found) == list(range(len(rows)))
    for place, row in found.items():
        key, metric, tokens, text = rows[place]
        stored = (_storable(key), tokens, _storable(text), Split.SELECTION, 0)
        assert (row.id, row.tokens, row.environment, row.split, row.attempts) == stored
        if place % 2:
            assert (row.state, row.worker, row.metric) == (JobState.PENDING, "", metric)
        else:
            assert (row.state, row.worker) == (JobState.DONE, _storable(worker))
            assert row.metric == place // 2


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")
