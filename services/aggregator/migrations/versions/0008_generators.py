"""Iterative runs may have a generator; candidates keep how its proposal was normalised."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; until now there was none."""
    digest = sa.Column("generator_digest", sa.Text(), nullable=False, server_default="")
    op.add_column("experiments", digest)
    op.add_column("candidates", sa.Column("normaliser", sa.Float(), nullable=True))
