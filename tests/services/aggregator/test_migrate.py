"""A separate process migrates the schema."""

import json
import os
import shutil
from contextlib import closing

import pytest

from modnorm.errors import PreconditionError
from modnorm.services.aggregator.storage import database as database_module
from modnorm.services.aggregator.storage.database import Database

MIGRATE = "modnorm.services.aggregator.migrate"
SERVE = "modnorm.services.aggregator.server"


@pytest.fixture
def run(start_module):
    """Run a module to its end; returns its exit code and its stderr."""

    def run(module, **changes):
        ended = start_module(module, environment=os.environ | changes).finish()
        return ended.returncode, ended.stderr

    return run


def test_the_migration_program_migrates_and_ends(run, database_url):
    with closing(Database(database_url)) as database:
        with pytest.raises(PreconditionError, match="has schema none"):
            database.check_schema()
        assert run(MIGRATE, MODNORM_DATABASE_URL=database_url)[0] == 0
        database.check_schema()
    code, log = run(MIGRATE, MODNORM_DATABASE_URL=database_url)
    assert code == 0
    last = json.loads(log.splitlines()[-1])
    assert (last["event"], last["logger"]) == ("the schema is up to date", MIGRATE)


def test_a_database_that_does_not_answer_ends_it_with_an_error(run):
    code, output = run(MIGRATE, MODNORM_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert code == 1
    (line,) = (json.loads(each) for each in output.splitlines() if "did not answer" in each)
    assert "Connection refused Is the server running" in line["event"]
    assert line["event"].endswith("(start the database, or correct MODNORM_DATABASE_URL)")
    assert "Traceback" not in output


@pytest.mark.parametrize("step", [Database.migrate, Database.check_schema])
def test_a_newer_schema_is_not_changed(database_url, step):
    with closing(Database(database_url)) as database:
        database.migrate()
        with database.write() as session:
            session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '99'")
        with pytest.raises(PreconditionError, match="schema 99, which this version") as caught:
            step(database)
    assert "start the version that migrated it" in str(caught.value)


LATER = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "10", "9", None, None


def upgrade():
    column = sa.Column("remark", sa.Text(), nullable=False, server_default="none")
    op.add_column("experiments", column)
"""


def test_rows_stay_when_a_later_version_migrates(world, tmp_path, monkeypatch):
    created = world.create()
    shutil.copytree(database_module._MIGRATIONS, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "0010_remark.py").write_text(LATER)
    monkeypatch.setattr(database_module, "_MIGRATIONS", tmp_path / "migrations")
    with pytest.raises(PreconditionError, match="has schema 9, this version needs 10"):
        world.database.check_schema()
    world.database.migrate()
    world.database.check_schema()
    assert [one.id for one, _ in world.experiments.page(10)] == [created]
    with world.database.read() as session:
        remarks = session.connection().exec_driver_sql("SELECT remark FROM experiments")
        assert remarks.scalars().all() == ["none"]


@pytest.mark.parametrize("revision", ["1", "8"])
def test_earlier_schemas_are_refused(database_url, revision):
    with closing(Database(database_url)) as database:
        database.migrate()
        with database.write() as session:
            statement = f"UPDATE alembic_version SET version_num = '{revision}'"
            session.connection().exec_driver_sql(statement)
        with pytest.raises(PreconditionError, match=f"schema {revision}, which this version"):
            database.migrate()


def test_an_aggregator_that_does_not_migrate_refuses_an_empty_database(run, tmp_path):
    code, output = run(
        SERVE,
        MODNORM_DATABASE_URL=f"sqlite:///{tmp_path}/empty.db",
        MODNORM_MIGRATE_ON_START="false",
        MODNORM_BIND_ADDRESS="127.0.0.1:0",
        MODNORM_BROKER_URL="memory://",
    )
    assert code == 1
    assert "modnorm.services.aggregator.migrate" in output
