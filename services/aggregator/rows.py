"""Rows of many jobs at a time, without what keeping track of changed objects costs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from sqlalchemy import Row, select
from sqlmodel import Session, SQLModel

from services.aggregator.bulk import ByIds, Values, insert, is_postgres
from services.aggregator.states import BASE_INDEX, JobState, Split
from services.aggregator.tables import Job

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
    def proposed(self) -> bool:
        """Whether a generator proposes its coefficients, which are not known yet."""
        return self.method == "zo_finetuner" and self.coefficients is None

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
        """Split a row of the columns of both."""
        values: Sequence[object] = tuple(row)
        cut = len(_JOB)
        return cls(JobRow(*values[:cut]), CandidateRow(*values[cut:]))  # type: ignore[arg-type]  # by place


_JOBS, _CANDIDATES = Job.metadata.tables["jobs"], Job.metadata.tables["candidates"]
_WORK = select(
    *(_JOBS.c[name] for name in _JOB), *(_CANDIDATES.c[name] for name in _CANDIDATE)
).join_from(
    _JOBS,
    _CANDIDATES,
    (_CANDIDATES.c.experiment_id == _JOBS.c.experiment_id)
    & (_CANDIDATES.c.index == _JOBS.c.candidate),
)
_LOCKED = ByIds(_JOBS.c.id, lambda found: _WORK.where(found).with_for_update(of=_JOBS))
_PENDING = ByIds(
    _JOBS.c.id,
    lambda found: _WORK.where(found, _JOBS.c.state == JobState.PENDING).with_for_update(
        of=_JOBS, skip_locked=True
    ),
)


def lock_work(session: Session, job_ids: Collection[str]) -> dict[str, Work]:
    """Lock jobs, and return them with their candidates, by id."""
    return _by_id(_LOCKED.execute(session, job_ids))


def lock_pending_work(session: Session, job_ids: Collection[str]) -> dict[str, Work]:
    """Return the same of those jobs that are pending and that nobody else has locked."""
    return _by_id(_PENDING.execute(session, job_ids))


def _by_id(rows: Iterable[Row[tuple[object, ...]]]) -> dict[str, Work]:
    return {work.job.id: work for work in map(Work.of, rows)}


AnyJob = Job | JobRow
"""A job, however it was read."""


def insert_rows(session: Session, table: type[SQLModel], rows: Iterable[Values]) -> None:
    """Store rows of one table, as many as there are, in bounded memory.

    Args:
        session: The transaction.
        table: The table; columns that are left out get their defaults.
        rows: Values by column, all of the same columns.
    """
    stored, left, name = 0, iter(rows), str(table.__tablename__)
    while batch := list(islice(left, _ROWS_AT_A_TIME)):
        insert(SQLModel.metadata.tables[name], tuple(batch[0])).execute(session, batch)
        stored += len(batch)
    if stored >= _ROWS_AT_A_TIME and is_postgres(session):
        # Plans that were made for a small table are kept, and read all of one that has grown.
        session.connection().exec_driver_sql(f"ANALYZE {name}")
