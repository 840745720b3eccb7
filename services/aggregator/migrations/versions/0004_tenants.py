"""Experiments belong to tenants, each of which has request ids of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give what is there to the default tenant.

    What was the request id stays unique as the key of the request. SQLite cannot drop the
    constraint, and renames a column with it.
    """
    op.execute("ALTER TABLE experiments RENAME COLUMN request_id TO request_key")
    request_id = sa.Column("request_id", sa.Text(), nullable=False, server_default="")
    op.add_column("experiments", request_id)
    op.execute("UPDATE experiments SET request_id = request_key")
    tenant = sa.Column("tenant", sa.Text(), nullable=False, server_default="default")
    op.add_column("experiments", tenant)
    op.create_index("ix_experiments_tenant", "experiments", ["tenant", "create_time", "id"])
