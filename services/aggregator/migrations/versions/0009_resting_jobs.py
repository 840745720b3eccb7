"""Jobs rest in an evaluator, for others to go first."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add whether they do; until now none did."""
    no = sa.false()
    op.add_column("jobs", sa.Column("resting", sa.Boolean(), nullable=False, server_default=no))
