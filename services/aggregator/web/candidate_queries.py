"""Queries of whole populations: as rows with all figures, or as the few columns of the page."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import pyarrow as pa
from sqlalchemy import case
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from modnorm.analysis.run_data import CandidateRow
from modnorm.search.stopping import Interval, certain_ranks
from modnorm.web.population import CANDIDATE_TYPES
from services.aggregator.storage.states import BASE_INDEX, JobState, Split
from services.aggregator.storage.tables import Candidate, Job

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
}


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
    correct: int
    attempts: int
    environment: str


_ROW_COLUMNS: Sequence[Any] = (
    *_PAGE_COLUMNS.values(),
    case((_DONE, col(Job.answers_done)), else_=0),
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
    lines = _population(session, experiment_id, list(_PAGE_COLUMNS.values()))
    found: dict[str, list[Any]] = {
        name: [line[place] for line in lines] for place, name in enumerate(_PAGE_COLUMNS)
    }
    metrics = _heldout_metrics(session, experiment_id)
    found["heldout_metric"] = [metrics.get(index) for index in found["index"]]
    found["rank"] = _ranks(found)
    found["gain"] = [
        None if reward is None or base is None else reward - base
        for reward in found["selection_reward"]
    ]
    return pa.table(
        {name: pa.array(found[name], type=kind) for name, kind in CANDIDATE_TYPES.items()}
    )


def candidate_rows(session: Session, experiment_id: str) -> Sequence[CandidateRow]:
    """Return the population of an experiment that has ended, without times and workers."""
    heldout = {
        job.candidate: job
        for job in session.exec(
            select(Job).where(Job.experiment_id == experiment_id, Job.split == Split.HELDOUT)
        )
    }
    return [
        _candidate_row(_Line(*line), heldout.get(line[0]))
        for line in _population(session, experiment_id, _ROW_COLUMNS)
    ]


def _population(
    session: Session, experiment_id: str, wanted: Sequence[Any]
) -> Sequence[Sequence[Any]]:
    """Return columns of the selection jobs, in candidate order, without the base."""
    query = (
        columns(*wanted)
        .join(
            Candidate,
            (col(Candidate.experiment_id) == col(Job.experiment_id))
            & (col(Candidate.index) == col(Job.candidate)),
        )
        .where(
            col(Job.experiment_id) == experiment_id,
            col(Job.split) == Split.SELECTION,
            col(Job.candidate) > BASE_INDEX,
        )
        .order_by(col(Job.candidate))
    )
    return cast("Sequence[Sequence[Any]]", session.connection().execute(query).all())


def _heldout_metrics(session: Session, experiment_id: str) -> Mapping[int, float | None]:
    query = select(Job.candidate, Job.metric).where(
        Job.experiment_id == experiment_id, Job.split == Split.HELDOUT
    )
    return dict(session.exec(query).all())


def _ranks(found: Mapping[str, Sequence[Any]]) -> list[int | None]:
    """Return the certain rank of each candidate; None where it has none."""
    bounds = zip(found["reward_lower"], found["reward_upper"], strict=True)
    stopped = {
        index: Interval(lower, upper)
        for index, (lower, upper) in enumerate(bounds)
        if lower is not None
    }
    ranks = certain_ranks(found["selection_reward"], stopped)
    return [ranks.get(index) for index in range(len(found["index"]))]


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
        heldout_answers=heldout.answers_done if heldout and heldout.state is JobState.DONE else 0,
        attempts=line.attempts,
        heldout_attempts=heldout.attempts if heldout else 0,
        environment=_environment(line.environment),
        heldout_environment=_environment(heldout.environment) if heldout else {},
    )


@lru_cache(maxsize=256)
def _environment(text: str) -> Mapping[str, str]:
    """Return the settings of an environment; most candidates share few."""
    return dict(json.loads(text))
