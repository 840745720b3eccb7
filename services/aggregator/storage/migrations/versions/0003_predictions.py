"""Predictions: questions that the ensemble of a finished experiment answers."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "predictions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("experts", sa.Text(), nullable=False),
        sa.Column("ask_all", sa.Boolean(), nullable=False),
        sa.Column("questions_digest", sa.Text(), nullable=False),
        sa.Column("questions", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["id"], ["experiments.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_predictions_questions", "predictions", ["questions_digest"])
