"""The first schema."""

from typing import TypeVar

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None

ValueT = TypeVar("ValueT")


def upgrade() -> None:
    """Create all tables."""
    _create_experiments()
    _create_candidates()
    _create_jobs()
    _create_results()


def _create_experiments() -> None:
    op.create_table(
        "artifacts",
        *_columns(sa.Text(), "digest", "kind"),
        *_columns(sa.LargeBinary(), "content"),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "experiments",
        *_columns(sa.Text(), "id", "tenant", "request_id", "request_key", "spec_json"),
        *_columns(sa.Text(), "spec_digest", "state", "error", "remedy", "waits_for"),
        *_columns(sa.Float(), "create_time"),
        *_columns(sa.Float(), "end_time", nullable=True),
        *_columns(sa.Text(), "model_digest", "scorer"),
        *_columns(sa.Integer(), "max_tokens"),
        *_columns(sa.Boolean(), "needs_profile"),
        *_columns(sa.Text(), "profile_digest", "scale_map_digest", nullable=True),
        *_columns(sa.Text(), "selection_digest", "heldout_digest"),
        *_columns(sa.Integer(), "selection_rows", "heldout_rows"),
        *_columns(sa.Text(), "selection_revision", "heldout_revision", nullable=True),
        *_columns(sa.Integer(), "examples_done", "examples_total"),
        *_columns(sa.BigInteger(), "last_cursor"),
        *_columns(sa.Integer(), "jobs_total", "jobs_done", "jobs_failed"),
        *_columns(sa.Text(), "development_digest"),
        *_columns(sa.Integer(), "development_rows"),
        *_columns(sa.Text(), "generator_digest"),
        *_columns(sa.Integer(), "updates_done", "candidates_stopped"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("request_key", name="uq_experiments_request_id"),
    )
    op.create_index("ix_experiments_created", "experiments", ["create_time", "id"])
    op.create_index("ix_experiments_state", "experiments", ["state"])
    op.create_index("ix_experiments_tenant", "experiments", ["tenant", "create_time", "id"])


def _create_candidates() -> None:
    op.create_table(
        "candidates",
        *_columns(sa.Text(), "experiment_id"),
        _number("index"),
        *_columns(sa.Text(), "noise"),
        *_columns(sa.BigInteger(), "seed"),
        *_columns(sa.Text(), "method"),
        *_columns(sa.Float(), "radius"),
        *_columns(sa.Text(), "scale_map_digest"),
        *_columns(sa.LargeBinary(), "coefficients", nullable=True),
        *_columns(sa.Text(), "lineage"),
        *_columns(sa.Float(), "normaliser", nullable=True),
        _of_experiment(),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )
    op.create_table(
        "updates",
        *_columns(sa.Text(), "experiment_id"),
        _number("index"),
        *_columns(sa.Text(), "step", "digest"),
        _of_experiment(),
        sa.PrimaryKeyConstraint("experiment_id", "index"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        *_columns(sa.Text(), "id", "experiment_id"),
        *_columns(sa.Integer(), "candidate"),
        *_columns(sa.Text(), "split", "state"),
        *_columns(sa.Integer(), "attempts"),
        *_columns(sa.BigInteger(), "token"),
        *_columns(sa.Text(), "worker"),
        *_columns(sa.Float(), "lease_deadline", nullable=True),
        *_columns(sa.Integer(), "answers_done"),
        *_columns(sa.Boolean(), "parked"),
        *_columns(sa.Integer(), "correct"),
        *_columns(sa.Text(), "error", "remedy"),
        *_columns(sa.Float(), "metric", "reward_lower", "reward_upper", nullable=True),
        *_columns(sa.LargeBinary(), "skipped", nullable=True),
        *_columns(sa.BigInteger(), "tokens"),
        *_columns(sa.Float(), "switch_seconds", "generate_seconds", "score_seconds"),
        *_columns(sa.Text(), "environment"),
        sa.ForeignKeyConstraint(
            ["experiment_id", "candidate"], ["candidates.experiment_id", "candidates.index"]
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("experiment_id", "split", "candidate", name="uq_jobs_candidate_split"),
    )
    op.create_index("ix_jobs_lease", "jobs", ["state", "lease_deadline"])
    ranking = ["experiment_id", "split", "state", "metric", "candidate"]
    op.create_index("ix_jobs_ranking", "jobs", ranking)
    op.create_table(
        "answers",
        *_columns(sa.Text(), "job_id"),
        *_columns(sa.LargeBinary(), "content"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )


def _create_results() -> None:
    ensemble = ["experiment_id", "population", "ensemble_size"]
    op.create_table(
        "ensembles",
        *_columns(sa.Text(), "experiment_id"),
        *map(_number, ensemble[1:]),
        *_columns(sa.Text(), "experts"),
        *_columns(sa.Float(), "metric"),
        *_columns(sa.Integer(), "correct", "rows"),
        _of_experiment(),
        sa.PrimaryKeyConstraint(*ensemble),
    )
    op.create_table(
        "votes",
        *_columns(sa.Text(), "experiment_id"),
        *map(_number, (*ensemble[1:], "row")),
        *_columns(sa.Text(), "answer", nullable=True),
        *_columns(sa.Boolean(), "correct"),
        *_columns(sa.Integer(), "valid", "support", "correct_support", "skipped"),
        sa.ForeignKeyConstraint(ensemble, [f"ensembles.{name}" for name in ensemble]),
        sa.PrimaryKeyConstraint(*ensemble, "row"),
    )
    op.create_table(
        "events",
        *_columns(sa.Text(), "experiment_id"),
        sa.Column("cursor", sa.BigInteger(), autoincrement=False, nullable=False),
        *_columns(sa.Float(), "time"),
        *_columns(sa.Text(), "message", "waits_for", "state"),
        *_columns(sa.LargeBinary(), "progress"),
        _of_experiment(),
        sa.PrimaryKeyConstraint("experiment_id", "cursor"),
    )


def _columns(
    kind: sa.types.TypeEngine[ValueT], *names: str, nullable: bool = False
) -> list[sa.Column[ValueT]]:
    return [sa.Column(name, kind, nullable=nullable) for name in names]


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), autoincrement=False, nullable=False)


def _of_experiment() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"])
