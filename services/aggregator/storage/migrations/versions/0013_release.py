"""The oldest schema that this version upgrades."""

revision = "13"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: `Database.migrate` creates an empty database with the newest schema."""
