"""Queries of whole populations: as rows with all figures, or as the few columns of the page."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Result, case
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.analysis.run_data import CandidateRow
from modnorm.search.stopping import Interval, certain_ranks
from modnorm.services.aggregator.storage.lookups import is_candidate_of_job
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Candidate, Job
from modnorm.web.population import CANDIDATE_TYPES

# As in `modnorm.wire.run_messages.candidate_row`.
_DONE = col(Job.state) == JobState.DONE
_STOPPED = _DONE & col(Job.reward_lower).is_not(None) & col(Job.reward_upper).is_not(None)
_STATE = case((_STOPPED, "stopped"), (_DONE, "scored"), else_="failed")
_REWARD = case((_DONE & ~_STOPPED, col(Job.metric)))
_LOWER = case((_STOPPED, col(Job.reward_lower)))
_UPPER = case((_STOPPED, col(Job.reward_upper)))
_PAGE_COLUMNS: Mapping[str, Any] = {
    "index": col(Job.candidate),
    "seed": col(Candidate.seed),
    "state": _STATE,
    "selection_reward": _REWARD,
    "reward_lower": _LOWER,
    "reward_upper": _UPPER,
    "selection_tokens": col(Job.tokens),
    "selection_answers": case((_DONE, col(Job.answers_done)), else_=0),
    "selection_valid": col(Job.valid),
    "selection_truncated": col(Job.truncated),
}
_SCHEMA = pa.schema({name: CANDIDATE_TYPES[name] for name in (*_PAGE_COLUMNS, "heldout_metric")})
_CHUNK = 10_000
"""Candidates held as rows at a time: collecting garbage among all rows would double the time."""


class _Line(NamedTuple):
    """The columns of a candidate, in the order of `_ROW_COLUMNS`."""

    candidate: int
    seed: int
    state: str
    reward: float | None
    lower: float | None
    upper: float | None
    tokens: int
    answers: int
    valid: int
    truncated: int
    correct: int
    attempts: int
    environment: str


_ROW_COLUMNS: Sequence[Any] = (
    *_PAGE_COLUMNS.values(),
    col(Job.correct),
    col(Job.attempts),
    col(Job.environment),
)


def candidate_table(session: Session, experiment_id: str, base: float | None) -> pa.Table:
    """Return the population of an experiment that has ended, as `candidates.csv` lists it.

    Args:
        session: The transaction.
        experiment_id: The experiment.
        base: Selection reward of the base, if known.

    Returns:
        A table with the columns of `CANDIDATE_TYPES`.
    """
    metrics = _heldout_metrics(session, experiment_id)
    chunks = _population(session, experiment_id, list(_PAGE_COLUMNS.values())).partitions(_CHUNK)
    found = pa.concat_tables(
        [_SCHEMA.empty_table(), *(_columns(lines, metrics) for lines in chunks)]
    )
    gain = pc.subtract(found["selection_reward"], pa.scalar(base, pa.float64()))
    whole = found.append_column("gain", gain).append_column("rank", _ranks(found))
    return whole.select(list(CANDIDATE_TYPES))


def candidate_rows(session: Session, experiment_id: str) -> Sequence[CandidateRow]:
    """Return the population of an experiment that has ended, without times and workers."""
    heldout = {
        job.candidate: job
        for job in session.exec(
            select(Job).where(Job.experiment_id == experiment_id, Job.split == Split.HELDOUT)
        )
    }
    return [
        _candidate_row(_Line._make(line), heldout.get(line[0]))
        for line in _population(session, experiment_id, _ROW_COLUMNS)
    ]


def _population(session: Session, experiment_id: str, wanted: Sequence[Any]) -> Result[Any]:
    """Return columns of the selection jobs, in candidate order, without the base."""
    query = (
        columns(*wanted)
        .join(Candidate, is_candidate_of_job())
        .where(
            col(Job.experiment_id) == experiment_id,
            col(Job.split) == Split.SELECTION,
            col(Job.candidate) > BASE_INDEX,
        )
        .order_by(col(Job.candidate))
    )
    return session.connection().execute(query)


def _heldout_metrics(session: Session, experiment_id: str) -> Mapping[int, float | None]:
    query = select(Job.candidate, Job.metric).where(
        Job.experiment_id == experiment_id, Job.split == Split.HELDOUT
    )
    return dict(session.exec(query).all())


def _columns(lines: Sequence[Sequence[Any]], metrics: Mapping[int, float | None]) -> pa.Table:
    """Return lines of `_PAGE_COLUMNS` as columns, with the held-out metrics."""
    found = {name: [line[place] for line in lines] for place, name in enumerate(_PAGE_COLUMNS)}
    found["heldout_metric"] = [metrics.get(index) for index in found["index"]]
    return pa.table(found, _SCHEMA)


def _ranks(found: pa.Table) -> pa.Array:
    """Return the certain rank of each candidate; null where it has none."""
    rewards = found["selection_reward"].combine_chunks()
    bounds = zip(*(found[f"reward_{end}"].to_pylist() for end in ("lower", "upper")), strict=True)
    stopped = {index: Interval(*pair) for index, pair in enumerate(bounds) if None not in pair}
    if stopped:
        ranks = certain_ranks(rewards.to_pylist(), stopped)
        return pa.array([ranks.get(index) for index in range(len(rewards))], pa.int32())
    order = pc.rank(rewards, "descending", tiebreaker="first")  # nulls at the end
    return pc.if_else(pc.is_valid(rewards), order, None).cast(pa.int32())


def _candidate_row(line: _Line, heldout: Job | None) -> CandidateRow:
    stopped = None
    if line.lower is not None and line.upper is not None:
        stopped = Interval(line.lower, line.upper)
    return CandidateRow(
        index=line.candidate,
        seed=line.seed,
        state=line.state,
        selection_reward=line.reward,
        stopped=stopped,
        heldout_metric=heldout.metric if heldout else None,
        selection_tokens=line.tokens,
        selection_answers=line.answers,
        selection_correct=line.correct,
        selection_valid=line.valid,
        selection_truncated=line.truncated,
        heldout_answers=heldout.answers_done if heldout and heldout.state is JobState.DONE else 0,
        heldout_valid=heldout.valid if heldout else 0,
        heldout_truncated=heldout.truncated if heldout else 0,
        attempts=line.attempts,
        heldout_attempts=heldout.attempts if heldout else 0,
        environment=_environment(line.environment),
        heldout_environment=_environment(heldout.environment) if heldout else {},
    )


@lru_cache(maxsize=256)
def _environment(text: str) -> Mapping[str, str]:
    """Return the settings of an environment; most candidates share few."""
    return dict(json.loads(text))
