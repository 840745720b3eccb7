"""A separate process migrates the schema."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from modnorm.errors import PreconditionError
from services.aggregator.storage.database import Database
from verification.labs.waiting import HANG_SECONDS

MIGRATE = (sys.executable, "-m", "services.aggregator.migrate")
SERVE = (sys.executable, "-m", "services.aggregator.server")


def run(command, **changes):
    ended = subprocess.run(
        command,
        env=os.environ | changes,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    return ended.returncode, ended.stderr


def test_the_migration_program_migrates_and_ends(database_url):
    with closing(Database(database_url)) as database:
        with pytest.raises(PreconditionError, match="has schema none"):
            database.check_schema()
        assert run(MIGRATE, MODNORM_DATABASE_URL=database_url)[0] == 0
        database.check_schema()
    assert run(MIGRATE, MODNORM_DATABASE_URL=database_url)[0] == 0


def test_a_database_that_does_not_answer_ends_it_with_an_error():
    code, output = run(MIGRATE, MODNORM_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert code == 1
    assert "the database did not answer" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("step", [Database.migrate, Database.check_schema])
def test_a_newer_schema_is_not_changed(database_url, step):
    with closing(Database(database_url)) as database:
        database.migrate()
        with database.write() as session:
            session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9'")
        with pytest.raises(PreconditionError, match="schema 9, which this version") as caught:
            step(database)
    assert "start the version that migrated it" in str(caught.value)


ADDED_COLUMNS = (
    "prompts_digest",
    "purpose",
    "parent_id",
    "training_digest",
    "training_rows",
    "temperature",
    "sampling_seed",
)
"""Columns of experiments that later schemas have added."""


def test_experiments_of_the_first_schema_stay_and_have_recorded_no_prompts(world):
    created = world.create()
    with world.database.write() as session:
        connection = session.connection()
        connection.exec_driver_sql("DROP INDEX ix_experiments_parent")
        for name in ADDED_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE experiments DROP COLUMN {name}")
        for table in ("predictions", "rounds"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '1'")
    world.database.migrate()
    assert world.stores.experiments.get(created).experiment.prompts_digest == ""
    assert [one.id for one, _ in world.stores.experiments.page(10, None)] == [created]


def test_an_aggregator_that_does_not_migrate_refuses_an_empty_database(tmp_path):
    code, output = run(
        SERVE,
        MODNORM_DATABASE_URL=f"sqlite:///{tmp_path}/empty.db",
        MODNORM_MIGRATE_ON_START="false",
        MODNORM_BIND_ADDRESS="127.0.0.1:0",
        MODNORM_BROKER_URL="memory://",
    )
    assert code == 1
    assert "services.aggregator.migrate" in output
