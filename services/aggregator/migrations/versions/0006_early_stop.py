"""Candidates may be stopped early, and experts may leave out rows whose vote is settled."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what tells so; until now, nothing was left out."""
    for name in ("reward_lower", "reward_upper"):
        op.add_column("jobs", sa.Column(name, sa.Float(), nullable=True))
    op.add_column("jobs", sa.Column("skipped", sa.LargeBinary(), nullable=True))
    for table, name in (("experiments", "candidates_stopped"), ("votes", "skipped")):
        op.add_column(table, sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
