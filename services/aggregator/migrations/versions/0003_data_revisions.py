"""Experiments keep the commits of the Hugging Face datasets that their rows were read from."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the commits; of rows that were read before, none is known."""
    for name in ("selection_revision", "heldout_revision"):
        op.add_column("experiments", sa.Column(name, sa.Text(), nullable=True))
