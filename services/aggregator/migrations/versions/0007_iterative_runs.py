"""Iterative runs: candidates around trained states, updates, development rows."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what iterative runs keep; until now there were none."""
    for table, name in (("candidates", "lineage"), ("experiments", "development_digest")):
        op.add_column(table, sa.Column(name, sa.Text(), nullable=False, server_default=""))
    for name in ("development_rows", "updates_done"):
        column = sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        op.add_column("experiments", column)
    op.create_table(
        "updates",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )
