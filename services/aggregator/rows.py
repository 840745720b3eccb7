"""Rows of many jobs at a time, without what keeping track of changed objects costs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from sqlalchemy import Row, bindparam, select
from sqlalchemy import update as update_of
from sqlmodel import Session, SQLModel

from services.aggregator.bulk import (
    ByIds,
    Values,
    given_rows,
    insert,
    is_postgres,
    rows_parameter,
    text_of,
    update,
)
from services.aggregator.growth import note_growth
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
RESULT = (
    "attempts",
    "worker",
    "metric",
    "reward_lower",
    "reward_upper",
    "answers_done",
    "correct",
    "tokens",
    "switch_seconds",
    "generate_seconds",
    "score_seconds",
    "environment",
)
"""What a job that is done records of its result."""


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
_COLUMNS = (*(_JOBS.c[name] for name in _JOB), *(_CANDIDATES.c[name] for name in _CANDIDATE))
_ITS_CANDIDATE = (_CANDIDATES.c.experiment_id == _JOBS.c.experiment_id) & (
    _CANDIDATES.c.index == _JOBS.c.candidate
)
_IS_PENDING = _JOBS.c.state == JobState.PENDING
_WORK = select(*_COLUMNS).join_from(_JOBS, _CANDIDATES, _ITS_CANDIDATE)
_LOCKED = ByIds(_JOBS.c.id, lambda found: _WORK.where(found).with_for_update(of=_JOBS))
_PENDING = ByIds(_JOBS.c.id, lambda found: _WORK.where(found, _IS_PENDING))
_DEADLINE = "deadline"
_NEW_LEASE = {"state": JobState.LEASED, "answers_done": 0, "resting": False, "skipped": None}
_LEASE = update(_JOBS, ("id",), ("token", "worker", "lease_deadline"), _NEW_LEASE)
_ASKED = given_rows(_JOBS, ("id", "worker"))
_FREE = (
    select(_JOBS.c.id, _ASKED.c.worker)
    .join_from(_JOBS, _ASKED, _JOBS.c.id == _ASKED.c.id)
    .where(_IS_PENDING)
    .with_for_update(of=_JOBS, skip_locked=True)
    .cte("free")
)
"""Locked as they are now, and pending now: that of a moment ago is not looked at again. What locks
rows is never merged into the update, whose own look at the state would be that of a moment ago."""
_LEASE_FREE = (
    update_of(_JOBS)
    .where(_JOBS.c.id == _FREE.c.id, _ITS_CANDIDATE)
    .values(
        token=_JOBS.c.token + 1,
        worker=_FREE.c.worker,
        lease_deadline=bindparam(_DEADLINE),
        **_NEW_LEASE,
    )
    .returning(*_COLUMNS)
)


def lock_work(session: Session, job_ids: Collection[str]) -> dict[str, Work]:
    """Lock jobs, and return them with their candidates, by id."""
    return _by_id(_LOCKED.execute(session, job_ids))


def lease_work(session: Session, workers: Mapping[str, str], deadline: float) -> dict[str, Work]:
    """Lease those of some jobs that are pending and that nobody else has locked.

    Args:
        session: The transaction.
        workers: Who gets each, by id.
        deadline: When the leases end.

    Returns:
        The leased ones with their candidates, as they are now, by id.
    """
    if not is_postgres(session):
        return _lease_in_file(session, workers, deadline)
    rows = text_of([{"id": job_id, "worker": worker} for job_id, worker in workers.items()])
    parameters = {rows_parameter(_JOBS): rows, _DEADLINE: deadline}
    return _by_id(session.connection().execute(_LEASE_FREE, parameters))


def _lease_in_file(
    session: Session, workers: Mapping[str, str], deadline: float
) -> dict[str, Work]:
    """Do the same on SQLite, where this transaction is the only one that writes."""
    pending = _by_id(_PENDING.execute(session, workers))
    for job_id, work in pending.items():
        work.job.state, work.job.token = JobState.LEASED, work.job.token + 1
        work.job.worker, work.job.skipped = workers[job_id], None
    leases = [
        {"id": job.id, "token": job.token, "worker": job.worker, "lease_deadline": deadline}
        for job in (work.job for work in pending.values())
    ]
    _LEASE.execute(session, leases)
    return pending


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
        note_growth(session, name)
