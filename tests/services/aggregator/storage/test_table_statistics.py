"""A grown table is analysed after its rows are stored, and large experiments are removed fast."""

from contextlib import closing

import pytest
from sqlalchemy import NullPool, create_engine, text

from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.aggregator.experiments.lifecycle import add_candidates
from modnorm.services.aggregator.remove_old import remove_experiment
from modnorm.services.aggregator.storage.database import Database
from verification.labs.waiting import wait_until

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
MANY = 1_000
DRAWN = {place: Descriptor("portable-v1", place, "randopt", 0.1, "x") for place in range(MANY)}
KNOWN = text("SELECT reltuples FROM pg_class WHERE oid = 'candidates'::regclass")


@pytest.fixture
def engine(postgres_url):
    """Connections of another process."""
    return create_engine(
        postgres_url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool
    )


def test_rows_are_stored_even_if_the_table_cannot_be_analysed(world, engine, caplog):
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE candidates IN SHARE UPDATE EXCLUSIVE MODE"))
        created = world.select(size=MANY, ensemble_sizes=[1])
        assert world.state(created) == "SELECTING"
    assert [record.args[0] for record in caplog.records] == ["candidates"]
    assert len(world.pending(created)) > 0


def test_rolled_back_scores_are_not_used(world, engine):
    first = world.create("first", size=MANY, ensemble_sizes=[1])

    def store_and_fail():
        with world.database.write() as session:
            add_candidates(session, first, DRAWN)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        store_and_fail()
    with engine.connect() as connection:
        assert connection.execute(KNOWN).scalar_one() <= 0


def test_rows_that_are_stored_in_parts_count_together(world, engine):
    """The votes of a run are stored one ensemble after the other."""
    created = world.create("first", size=MANY, ensemble_sizes=[1])
    with world.database.write() as session:
        for place, descriptor in DRAWN.items():
            add_candidates(session, created, {place: descriptor})
    with engine.connect() as connection:
        assert connection.execute(KNOWN).scalar_one() == MANY


SESSIONS = text(
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
READ = text("SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_user_tables")


def blocks_read(engine):
    """Return the number of blocks of indexes that sessions have read, once they have ended."""
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")  # each statement reads anew
        wait_until(lambda: not connection.execute(SESSIONS).scalar_one(), "all sessions end")
        return connection.execute(READ).scalar_one()


def test_the_removal_of_each_candidate_reads_few_blocks(world, engine):
    """They would grow with the population if each candidate looked through all jobs."""
    size = 2 * MANY
    created = world.select(size=size, ensemble_sizes=[1])
    world.database.close()
    before = blocks_read(engine)
    with closing(Database(str(engine.url))) as database, database.write() as session:
        remove_experiment(session, created)
    assert blocks_read(engine) - before < 12 * size
