"""Jobs of the present phase are counted on their experiment; an index ranks rewards."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COUNTERS = ("jobs_total", "jobs_done", "jobs_failed")
_EXPERIMENTS = sa.table("experiments", *map(sa.column, ("id", *_COUNTERS)))
_JOBS = sa.table("jobs", *map(sa.column, ("experiment_id", "split", "state")))


def upgrade() -> None:
    """Add the counters, count what is there, and replace the index of states."""
    for name in _COUNTERS:
        counter = sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        op.add_column("experiments", counter)
    op.execute(
        sa.update(_EXPERIMENTS).values(
            jobs_total=_count(),
            jobs_done=_count(_JOBS.c.state == "done"),
            jobs_failed=_count(_JOBS.c.state == "failed"),
        )
    )
    ranking = ["experiment_id", "split", "state", "metric", "candidate"]
    op.create_index("ix_jobs_ranking", "jobs", ranking)
    op.drop_index("ix_jobs_experiment_state", table_name="jobs")


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    """Count jobs of an experiment: the held-out ones if there are any, or else the others."""
    heldout = _JOBS.alias("heldout")
    voting = (
        sa.exists()
        .where(heldout.c.experiment_id == _EXPERIMENTS.c.id, heldout.c.split == "heldout")
        .correlate(_EXPERIMENTS)
    )
    return (
        sa.select(sa.func.count())
        .select_from(_JOBS)
        .where(
            _JOBS.c.experiment_id == _EXPERIMENTS.c.id,
            _JOBS.c.split == sa.case((voting, "heldout"), else_="selection"),
            *conditions,
        )
        .scalar_subquery()
    )
