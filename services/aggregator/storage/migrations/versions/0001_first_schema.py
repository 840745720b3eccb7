"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "experiments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request_key", sa.Text(), nullable=False),
        sa.Column("spec_json", sa.Text(), nullable=False),
        sa.Column("spec_digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("waits_for", sa.Text(), nullable=False),
        sa.Column("create_time", sa.Float(), nullable=False),
        sa.Column("end_time", sa.Float(), nullable=True),
        sa.Column("model_digest", sa.Text(), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("max_tokens", sa.Integer(), nullable=False),
        sa.Column("needs_profile", sa.Boolean(), nullable=False),
        sa.Column("profile_digest", sa.Text(), nullable=True),
        sa.Column("scale_map_digest", sa.Text(), nullable=True),
        sa.Column("selection_digest", sa.Text(), nullable=False),
        sa.Column("heldout_digest", sa.Text(), nullable=False),
        sa.Column("selection_rows", sa.Integer(), nullable=False),
        sa.Column("heldout_rows", sa.Integer(), nullable=False),
        sa.Column("selection_revision", sa.Text(), nullable=True),
        sa.Column("heldout_revision", sa.Text(), nullable=True),
        sa.Column("examples_done", sa.Integer(), nullable=False),
        sa.Column("examples_total", sa.Integer(), nullable=False),
        sa.Column("last_cursor", sa.BigInteger(), nullable=False),
        sa.Column("jobs_total", sa.Integer(), nullable=False),
        sa.Column("jobs_done", sa.Integer(), nullable=False),
        sa.Column("jobs_failed", sa.Integer(), nullable=False),
        sa.Column("development_digest", sa.Text(), nullable=False),
        sa.Column("development_rows", sa.Integer(), nullable=False),
        sa.Column("generator_digest", sa.Text(), nullable=False),
        sa.Column("updates_done", sa.Integer(), nullable=False),
        sa.Column("candidates_stopped", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("request_key", name="uq_experiments_request_id"),
    )
    op.create_index("ix_experiments_created", "experiments", ["create_time", "id"], unique=False)
    op.create_index("ix_experiments_state", "experiments", ["state"], unique=False)
    op.create_index(
        "ix_experiments_tenant", "experiments", ["tenant", "create_time", "id"], unique=False
    )
    op.create_table(
        "candidates",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("noise", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("radius", sa.Float(), nullable=False),
        sa.Column("scale_map_digest", sa.Text(), nullable=False),
        sa.Column("coefficients", sa.LargeBinary(), nullable=True),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("normaliser", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
        ),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )
    op.create_table(
        "ensembles",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("population", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ensemble_size", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("experts", sa.Text(), nullable=False),
        sa.Column("metric", sa.Float(), nullable=False),
        sa.Column("correct", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
        ),
        sa.PrimaryKeyConstraint("experiment_id", "population", "ensemble_size"),
    )
    op.create_table(
        "events",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("waits_for", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("progress", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
        ),
        sa.PrimaryKeyConstraint("experiment_id", "cursor"),
    )
    op.create_table(
        "updates",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
        ),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("lease_deadline", sa.Float(), nullable=True),
        sa.Column("answers_done", sa.Integer(), nullable=False),
        sa.Column("resting", sa.Boolean(), nullable=False),
        sa.Column("correct", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("metric", sa.Float(), nullable=True),
        sa.Column("reward_lower", sa.Float(), nullable=True),
        sa.Column("reward_upper", sa.Float(), nullable=True),
        sa.Column("skipped", sa.LargeBinary(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("switch_seconds", sa.Float(), nullable=False),
        sa.Column("generate_seconds", sa.Float(), nullable=False),
        sa.Column("score_seconds", sa.Float(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id", "candidate"],
            ["candidates.experiment_id", "candidates.index"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("experiment_id", "split", "candidate", name="uq_jobs_candidate_split"),
    )
    op.create_index("ix_jobs_lease", "jobs", ["state", "lease_deadline"], unique=False)
    op.create_index(
        "ix_jobs_ranking",
        "jobs",
        ["experiment_id", "split", "state", "metric", "candidate"],
        unique=False,
    )
    op.create_table(
        "votes",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("population", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ensemble_size", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("correct", sa.Boolean(), nullable=False),
        sa.Column("valid", sa.Integer(), nullable=False),
        sa.Column("support", sa.Integer(), nullable=False),
        sa.Column("correct_support", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id", "population", "ensemble_size"],
            ["ensembles.experiment_id", "ensembles.population", "ensembles.ensemble_size"],
        ),
        sa.PrimaryKeyConstraint("experiment_id", "population", "ensemble_size", "row"),
    )
    op.create_table(
        "answers",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
