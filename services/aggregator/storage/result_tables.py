"""The tables of results: answers, ensembles and votes."""

from sqlalchemy import ForeignKeyConstraint, LargeBinary
from sqlmodel import Field, SQLModel

from modnorm.services.aggregator.storage.column_types import NO_AUTOINCREMENT, Text


class AnswerSheet(SQLModel, table=True):
    """All answers of one job, packed."""

    __tablename__ = "answers"
    __table_args__ = (ForeignKeyConstraint(["job_id"], ["jobs.id"]),)

    job_id: str = Field(primary_key=True, sa_type=Text)
    content: bytes = Field(sa_type=LargeBinary)


class Ensemble(SQLModel, table=True):
    """The result of one (N, K)."""

    __tablename__ = "ensembles"
    __table_args__ = (ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),)

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    population: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    experts: str = Field(sa_type=Text)
    """JSON list of candidate indices, best first."""
    metric: float
    correct: int
    rows: int


class Vote(SQLModel, table=True):
    """One voted answer."""

    __tablename__ = "votes"
    __table_args__ = (
        ForeignKeyConstraint(
            ["experiment_id", "population", "ensemble_size"],
            ["ensembles.experiment_id", "ensembles.population", "ensembles.ensemble_size"],
        ),
    )

    experiment_id: str = Field(primary_key=True, sa_type=Text)
    population: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    ensemble_size: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    row: int = Field(primary_key=True, sa_column_kwargs=NO_AUTOINCREMENT)
    answer: str | None = Field(default=None, sa_type=Text)
    correct: bool
    valid: int
    support: int
    correct_support: int
    skipped: int = 0
    """Number of experts that skipped the row. The other counts exclude them."""
