"""The schema and its migrations."""

import shutil
from contextlib import closing

import pytest

from modnorm.errors import PreconditionError
from modnorm.services.aggregator.storage import database as database_module
from modnorm.services.aggregator.storage.database import Database
from tests.services.aggregator.world import on_both_databases

pytestmark = on_both_databases


@pytest.mark.parametrize(
    ("revision", "step"),
    [
        ("99", Database.migrate),
        ("99", Database.check_schema),
        ("1", Database.migrate),
        ("10", Database.migrate),
    ],
)
def test_newer_and_earlier_schemas_are_refused(database_url, revision, step):
    with closing(Database(database_url)) as database:
        database.migrate()
        with database.write() as session:
            statement = f"UPDATE alembic_version SET version_num = '{revision}'"
            session.connection().exec_driver_sql(statement)
        told = f"schema {revision}, which this version"
        with pytest.raises(PreconditionError, match=told) as caught:
            step(database)
    assert "start the version that migrated it" in str(caught.value)


LATER = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "14", "13", None, None


def upgrade():
    column = sa.Column("remark", sa.Text(), nullable=False, server_default="none")
    op.add_column("experiments", column)
"""


def test_rows_stay_when_a_later_version_migrates(world, tmp_path, monkeypatch):
    created = world.create()
    shutil.copytree(database_module._MIGRATIONS, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "0014_remark.py").write_text(LATER)
    monkeypatch.setattr(database_module, "_MIGRATIONS", tmp_path / "migrations")
    with pytest.raises(PreconditionError, match="has schema 13, this version needs 14"):
        world.database.check_schema()
    world.database.migrate()
    world.database.check_schema()
    assert [one.id for one, _ in world.experiments.page(10)] == [created]
    with world.database.read() as session:
        remarks = session.connection().exec_driver_sql("SELECT remark FROM experiments")
        assert remarks.scalars().all() == ["none"]
