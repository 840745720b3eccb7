"""Results of jobs, copied to jobs of another experiment inside the database.

What two experiments have in common is read a thousand candidates at a time and written by the keys
of both jobs. The database has yet to learn that its tables have grown: a statement about all
candidates, planned as for a few, could look at each of them for each.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy import insert as insert_into
from sqlalchemy import update as update_of
from sqlmodel import Session

from services.aggregator.bulk import by_pairs
from services.aggregator.rows import RESULT
from services.aggregator.states import JobState, Split
from services.aggregator.tables import Job

_AT_A_TIME = 1_000
_DESCRIPTOR = ("noise", "seed", "method", "radius", "scale_map_digest", "lineage")
_JOBS, _CANDIDATES = Job.metadata.tables["jobs"], Job.metadata.tables["candidates"]
_SHEETS = Job.metadata.tables["answers"]
_MINE, _DONE = _JOBS.alias("mine"), _JOBS.alias("done")
_OURS, _THEIRS = _CANDIDATES.alias("ours"), _CANDIDATES.alias("theirs")
_FIRST = bindparam("first", type_=_JOBS.c.candidate.type)
_LAST = bindparam("last", type_=_JOBS.c.candidate.type)
_SPLIT = bindparam("split", type_=_JOBS.c.split.type)

_PENDING = (
    select(_JOBS.c.candidate)
    .where(
        _JOBS.c.experiment_id == bindparam("experiment"),
        _JOBS.c.split == _SPLIT,
        _JOBS.c.state == JobState.PENDING,
    )
    .order_by(_JOBS.c.candidate)
)
_PAIRS = (
    select(
        _MINE.c.candidate,
        _MINE.c.id,
        _DONE.c.id,
        _DONE.c.metric,
        _DONE.c.reward_upper,
        _MINE.c.state,
        _DONE.c.state,
    )
    .where(
        _MINE.c.experiment_id == bindparam("experiment"),
        _DONE.c.experiment_id == bindparam("predecessor"),
        _MINE.c.split == _SPLIT,
        _DONE.c.split == _SPLIT,
        *(one.c.candidate.between(_FIRST, _LAST) for one in (_MINE, _DONE)),
        *(one.c.index.between(_FIRST, _LAST) for one in (_OURS, _THEIRS)),
        _DONE.c.candidate == _MINE.c.candidate,
        _OURS.c.experiment_id == _MINE.c.experiment_id,
        _OURS.c.index == _MINE.c.candidate,
        _THEIRS.c.experiment_id == _DONE.c.experiment_id,
        _THEIRS.c.index == _DONE.c.candidate,
        *(_OURS.c[name] == _THEIRS.c[name] for name in _DESCRIPTOR),
    )
    .order_by(_MINE.c.candidate)
)
"""States are looked at afterwards: the index of the ranking, which has them, could be taken to
lead to the one job of a candidate, and leads to all of an experiment."""

_COPY_ANSWERS = by_pairs(
    _SHEETS,
    lambda target, source: insert_into(_SHEETS).from_select(
        ["job_id", "content"],
        select(target, _SHEETS.c.content).where(_SHEETS.c.job_id == source),
    ),
)
_COPY_COEFFICIENTS = by_pairs(
    _CANDIDATES,
    lambda target, source: (
        update_of(_CANDIDATES)
        .where(
            _MINE.c.id == target,
            _DONE.c.id == source,
            _CANDIDATES.c.experiment_id == _MINE.c.experiment_id,
            _CANDIDATES.c.index == _MINE.c.candidate,
            _THEIRS.c.experiment_id == _DONE.c.experiment_id,
            _THEIRS.c.index == _CANDIDATES.c.index,
        )
        .values(coefficients=_THEIRS.c.coefficients, normaliser=_THEIRS.c.normaliser)
    ),
)
_COPY_RESULT = by_pairs(
    _JOBS,
    lambda target, source: (
        update_of(_JOBS)
        .where(_JOBS.c.id == target, _DONE.c.id == source, _DONE.c.candidate == _JOBS.c.candidate)
        .values(
            state=JobState.DONE, lease_deadline=None, **{name: _DONE.c[name] for name in RESULT}
        )
    ),
)


class Pair(NamedTuple):
    """A pending job, and one that is done of an equal descriptor and the same rows."""

    candidate: int
    job: str
    source: str
    metric: float | None
    """Of the one that is done, as what follows."""
    upper: float | None


def common_jobs(
    session: Session, experiment_id: str, predecessor: str, split: Split
) -> Iterator[Sequence[Pair]]:
    """Yield, some at a time and in order, the pending jobs of a phase that a predecessor has done.

    Args:
        session: The transaction; what it has changed is flushed.
        experiment_id: Whose jobs are pending.
        predecessor: The other experiment.
        split: The phase.
    """
    connection = session.connection()
    whose = {"experiment": experiment_id, "split": split}
    pending = connection.execute(_PENDING, whose).scalars().all()
    for start in range(0, len(pending), _AT_A_TIME):
        some = pending[start : start + _AT_A_TIME]
        window = {"predecessor": predecessor, "first": some[0], "last": some[-1]}
        found = connection.execute(_PAIRS, {**whose, **window})
        yield [
            Pair(*pair)
            for *pair, mine, done in found
            if mine is JobState.PENDING and done is JobState.DONE
        ]


def copy_results(session: Session, pairs: Sequence[Pair]) -> None:
    """End pending jobs by the results of others: what they record, answers, coefficients."""
    rows = [{"target": pair.job, "source": pair.source} for pair in pairs]
    for statement in (_COPY_ANSWERS, _COPY_COEFFICIENTS, _COPY_RESULT):
        statement.execute(session, rows)
