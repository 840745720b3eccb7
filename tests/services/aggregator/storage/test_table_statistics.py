"""A grown table is analysed after its rows are stored, without blocking others."""

import pytest
from sqlalchemy import NullPool, create_engine, text

from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.aggregator.experiments.lifecycle import add_candidates

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
