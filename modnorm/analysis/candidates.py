"""Candidates with their ranks and gains: the lines of `candidates.csv`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import pandas as pd

from modnorm.analysis.run_data import CandidateRow
from modnorm.search.ranking import rank


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """One line of `candidates.csv`, whose columns have these names."""

    index: int
    """Index in the population, from 0."""
    seed: int
    """Seed of its noise."""
    state: str
    """`scored` or `failed`."""
    rank: int | None
    """Rank by selection reward in the whole population, from 1; None unless scored."""
    selection_reward: float | None
    """Mean selection reward; None unless scored."""
    gain: float | None
    """The selection reward less that of the base."""
    heldout_metric: float | None
    """Held-out metric of the candidate alone, a fraction; None unless it was an expert and
    answered every row."""
    selection_tokens: int
    """Tokens generated on the selection rows."""
    selection_answers: int
    """Stored answers on the selection rows."""
    selection_correct: int
    """Selection answers whose vote is right."""
    selection_valid: int
    """Selection answers that give a vote."""
    selection_truncated: int
    """Selection answers that the completion cap ended."""
    heldout_answers: int
    """Stored answers on the held-out rows; 0 unless it was an expert."""
    heldout_valid: int
    """Held-out answers that give a vote."""
    heldout_truncated: int
    """Held-out answers that the completion cap ended."""


_DERIVED = frozenset({"rank", "gain"})
_STORED = tuple(each.name for each in fields(CandidateRecord) if each.name not in _DERIVED)
"""Fields that `CandidateRow` has too."""
_FLOATS = ("selection_reward", "gain", "heldout_metric")
CANDIDATE_TYPES = MappingProxyType(
    {
        **{each.name: "int64" for each in fields(CandidateRecord)},
        **dict.fromkeys(_FLOATS, "float64"),
        "seed": "uint64",
        "rank": "Int64",
        "state": "str",
    }
)
"""Columns of `candidates.csv` in order, with their types in a table of pandas."""


def candidate_records(frame: pd.DataFrame) -> tuple[CandidateRecord, ...]:
    """Return the lines of a table with the columns of `CANDIDATE_TYPES`."""
    values = frame.astype(object).where(frame.notna(), None)
    return tuple(CandidateRecord(*line) for line in values.itertuples(index=False))


def ranked_candidates(
    candidates: Sequence[CandidateRow], base: CandidateRow
) -> tuple[CandidateRecord, ...]:
    """Return a record of each candidate of a whole population, in candidate order."""
    order = rank([each.selection_reward for each in candidates], len(candidates))
    ranks = {index: place for place, index in enumerate(order, 1)}
    return tuple(
        CandidateRecord(
            **{name: getattr(each, name) for name in _STORED},
            rank=ranks.get(each.index),
            gain=None
            if each.selection_reward is None or base.selection_reward is None
            else each.selection_reward - base.selection_reward,
        )
        for each in candidates
    )
