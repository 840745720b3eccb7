"""Distillations: rounds of search, harvest and training."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"
branch_labels = None
depends_on = None

_TEXTS = (
    "searched_model",
    "searched_digest",
    "start_model",
    "start_digest",
    "search_id",
    "harvest_id",
    "evaluation_id",
    "dataset_digest",
    "student_digest",
)


def upgrade() -> None:
    """Add the columns of experiments and create the table of rounds."""
    for name, kind, default in (
        ("purpose", sa.Text(), "search"),
        ("parent_id", sa.Text(), ""),
        ("training_digest", sa.Text(), ""),
        ("training_rows", sa.Integer(), "0"),
        ("temperature", sa.Float(), "0"),
        ("sampling_seed", sa.BigInteger(), "0"),
    ):
        column = sa.Column(name, kind, nullable=False, server_default=default)
        op.add_column("experiments", column)
    op.create_index("ix_experiments_parent", "experiments", ["parent_id"])
    op.create_table(
        "rounds",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.Column("harvest", sa.LargeBinary(), nullable=False),
        sa.Column("training", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )
