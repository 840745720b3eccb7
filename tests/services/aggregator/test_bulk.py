"""Rows that are stored and changed together are as if that had been done one by one."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, delete, func, select
from sqlmodel import Session, SQLModel

from services.aggregator.bulk import ByIds, RowStatements, insert, update
from services.aggregator.growth import analyse_grown
from services.aggregator.rows import insert_rows
from services.aggregator.states import JobState, Split
from services.aggregator.tables import Job

JOBS, CANDIDATES = Job.metadata.tables["jobs"], Job.metadata.tables["candidates"]
CANDIDATE_COLUMNS = (
    "experiment_id", "index", "noise", "seed", "method", "radius", "scale_map_digest", "lineage",
)  # fmt: skip
COLUMNS = ("id", "experiment_id", "candidate", "split", "metric", "tokens", "environment")
INSERT = insert(JOBS, COLUMNS)
UPDATE = update(JOBS, ("id",), ("worker", "metric"), {"state": JobState.DONE})
FIND = ByIds(JOBS.c.id, lambda found: select(JOBS).where(found).order_by(JOBS.c.id))

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
    """The tables alone, on either database, without what ties jobs to experiments."""
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
def test_what_is_written_is_read_again(engine, rows, worker) -> None:
    jobs = [
        dict(zip(COLUMNS, (key, "e", place, Split.SELECTION, metric, tokens, text), strict=True))
        for place, (key, metric, tokens, text) in enumerate(rows)
    ]
    with Session(engine) as session, session.begin():
        if session.connection().dialect.name == "postgresql":
            session.connection().exec_driver_sql("SET session_replication_role = replica")
        session.connection().execute(delete(JOBS))
        INSERT.execute(session, jobs)
        changed = [
            {"id": job["id"], "worker": worker, "metric": float(place)}
            for place, job in enumerate(jobs[::2])
        ]
        UPDATE.execute(session, changed)
        wanted = [job["id"] for job in jobs[:3]]
        found = {row.candidate: row for row in FIND.execute(session, wanted)}
    assert sorted(found) == list(range(len(wanted)))
    for place, row in found.items():
        key, metric, tokens, text = rows[place]
        stored = (_storable(key), tokens, _storable(text), Split.SELECTION, 0)
        assert (row.id, row.tokens, row.environment, row.split, row.attempts) == stored
        if place % 2:
            assert (row.state, row.worker, row.metric) == (JobState.PENDING, "", metric)
        else:
            assert (row.state, row.worker) == (JobState.DONE, _storable(worker))
            assert row.metric == place // 2


@pytest.mark.parametrize("counts", [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_statements_in_one_round_trip_are_each_executed(engine, counts) -> None:
    jobs, drawn = counts
    with Session(engine) as session, session.begin():
        if session.connection().dialect.name == "postgresql":
            session.connection().exec_driver_sql("SET session_replication_role = replica")
        rows = [
            dict(zip(COLUMNS, (str(one), "e", one, Split.SELECTION, None, 0, ""), strict=True))
            for one in range(jobs)
        ]
        candidates = [
            {"experiment_id": "e", "index": one, "noise": "n", "seed": one, "method": "m"}
            | {"radius": 0.5, "scale_map_digest": "d", "lineage": ""}
            for one in range(drawn)
        ]
        INSERT.execute(session, rows)
        done = [{"id": row["id"], "worker": "w", "metric": None} for row in rows]
        both = RowStatements(UPDATE, insert(CANDIDATES, CANDIDATE_COLUMNS))
        both.execute(session, (done, candidates))
        finished = select(func.count()).where(JOBS.c.state == JobState.DONE)
        assert session.connection().execute(finished).scalar_one() == jobs
        stored = select(func.count()).select_from(CANDIDATES)
        assert session.connection().execute(stored).scalar_one() == drawn


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")


@pytest.mark.parametrize(("count", "known"), [(999, False), (1_001, True)])
def test_plans_of_a_table_that_grows_by_much_are_made_anew(engine, count, known) -> None:
    rows = ({"id": str(place), "experiment_id": "e", "candidate": place} for place in range(count))
    with Session(engine) as session:
        with session.begin():
            if session.connection().dialect.name == "postgresql":
                session.connection().exec_driver_sql("SET session_replication_role = replica")
            insert_rows(session, Job, ({**row, "split": Split.SELECTION} for row in rows))
        analyse_grown(engine, session)
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(JOBS)).scalar_one() == count
        if connection.dialect.name == "postgresql":
            query = "SELECT reltuples FROM pg_class WHERE oid = 'jobs'::regclass"
            assert (connection.exec_driver_sql(query).scalar_one() == count) == known
