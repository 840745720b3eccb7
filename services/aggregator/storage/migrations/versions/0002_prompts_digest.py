"""The digest of an experiment's prompts."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; experiments that exist have recorded none."""
    column = sa.Column("prompts_digest", sa.Text(), nullable=False, server_default="")
    op.add_column("experiments", column)
