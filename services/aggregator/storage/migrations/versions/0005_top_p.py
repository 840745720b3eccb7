"""The probability of the tokens that a harvest draws from."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, unless the version that made this database had it in schema 4 already."""
    columns = sa.inspect(op.get_bind()).get_columns("experiments")
    if all(column["name"] != "top_p" for column in columns):
        column = sa.Column("top_p", sa.Float(), nullable=False, server_default="1")
        op.add_column("experiments", column)
