"""The students of removed experiments, until their files are removed."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table("obsolete_students", sa.Column("digest", sa.Text(), primary_key=True))
