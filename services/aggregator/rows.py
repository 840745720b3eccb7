"""Rows of many jobs at a time, without what keeping track of changed objects costs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from sqlalchemy import Row, insert, select
from sqlalchemy.sql import Select
from sqlmodel import Session, SQLModel, col

from services.aggregator.states import BASE_INDEX, JobState, Split
from services.aggregator.tables import Candidate, Job

_ROWS_AT_A_TIME = 1_000
_JOB = (
    "id", "experiment_id", "candidate", "split", "state", "attempts", "token", "worker", "skipped",
)  # fmt: skip
_CANDIDATE = (
    "index",
    "noise",
    "seed",
    "method",
    "radius",
    "scale_map_digest",
    "coefficients",
    "lineage",
)


@dataclass(slots=True)
class JobRow:
    """A job as it is in the database, with what a report fills in."""

    id: str
    experiment_id: str
    candidate: int
    split: Split
    state: JobState
    attempts: int
    token: int
    worker: str
    skipped: bytes | None
    lease_deadline: float | None = None
    error: str = ""
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """What a descriptor is made of."""

    index: int
    noise: str
    seed: int
    method: str
    radius: float
    scale_map_digest: str
    coefficients: bytes | None
    lineage: str = ""

    @property
    def is_base(self) -> bool:
        """Whether it is the unperturbed model."""
        return self.index == BASE_INDEX


@dataclass(frozen=True, slots=True)
class Work:
    """A job and its candidate."""

    job: JobRow
    candidate: CandidateRow

    @classmethod
    def of(cls, row: Row[tuple[object, ...]]) -> Self:
        """Split a row of `select_work`."""
        values: Sequence[object] = tuple(row)
        cut = len(_JOB)
        return cls(JobRow(*values[:cut]), CandidateRow(*values[cut:]))  # type: ignore[arg-type]  # by place


def select_work(job_ids: Collection[str]) -> Select[tuple[object, ...]]:
    """Return the query for jobs with their candidates."""
    columns = [getattr(Job, name) for name in _JOB] + [getattr(Candidate, n) for n in _CANDIDATE]
    return (
        select(*columns)
        .join_from(
            Job,
            Candidate,
            (col(Candidate.experiment_id) == col(Job.experiment_id))
            & (col(Candidate.index) == col(Job.candidate)),
        )
        .where(col(Job.id).in_(job_ids))
    )


AnyJob = Job | JobRow
"""A job, however it was read."""


def insert_rows(
    session: Session, table: type[SQLModel], rows: Iterable[Mapping[str, object]]
) -> None:
    """Store rows of one table, as many as there are, in bounded memory.

    Args:
        session: The transaction.
        table: The table; columns that are left out get their defaults.
        rows: Values by column.
    """
    left, connection = iter(rows), session.connection()
    while batch := [dict(row) for row in islice(left, _ROWS_AT_A_TIME)]:
        connection.execute(insert(SQLModel.metadata.tables[str(table.__tablename__)]), batch)
