"""The answers of a job that give a vote, and those that the completion cap ended."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; runs that finished before count none."""
    for name in ("valid", "truncated"):
        column = sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        op.add_column("jobs", column)
