"""The schema of version 0.1.0, the first release; `Database.migrate` makes it in one step."""

revision = "4"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: no released version has an older schema."""
