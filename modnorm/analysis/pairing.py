"""Two runs on the same held-out rows, row by row: does the data separate them?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from modnorm.analysis.run_files import read_vote_lines
from modnorm.analysis.uncertainty import (
    LEVEL,
    ConfidenceInterval,
    accuracy_interval,
    mcnemar,
    mean_interval,
)

Verdicts = Mapping[tuple[int, int], Sequence[bool]]
"""By (N, K), whether the vote on each held-out row is right."""


class PairedEnsembles(TypedDict):
    """The ensembles of two runs at one (N, K), on the same rows; fractions of the rows."""

    population: int
    ensemble_size: int
    rows: int
    accuracy: float
    """Of the first run."""
    interval: ConfidenceInterval | None
    other_accuracy: float
    other_interval: ConfidenceInterval | None
    difference: float
    """First run less the other."""
    difference_interval: ConfidenceInterval | None
    """Paired bootstrap over rows; None with a single row."""
    only_first: int
    """Rows that only the first run answers right."""
    only_other: int
    p_value: float
    """Of McNemar's exact test."""
    separated: bool
    """Whether the test rejects, at 5 %, that both runs are equally often right."""


def read_verdicts(directory: Path) -> Verdicts:
    """Read from `votes.jsonl` whether each vote of a run is right.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    votes = read_vote_lines(directory)
    verdicts: dict[tuple[int, int], list[bool]] = {}
    for population, size, correct in zip(
        votes["population"], votes["ensemble_size"], votes["correct"], strict=True
    ):
        verdicts.setdefault((population, size), []).append(correct)
    return verdicts


def pair_ensembles(first: Verdicts, other: Verdicts) -> list[PairedEnsembles]:
    """Compare two runs at every (N, K) that both have, by N, then K.

    Args:
        first: Votes of one run.
        other: Votes of another run on the same rows in the same order.
    """
    return [
        _pair(population, size, first[population, size], other[population, size])
        for population, size in sorted(first.keys() & other.keys())
    ]


def describe_pairs(pairs: Sequence[PairedEnsembles], first: str, other: str) -> str:
    """State whether the data separates two runs at their largest (N, K), and at how many (N, K).

    Args:
        pairs: What `pair_ensembles` returned.
        first: Name of the first run.
        other: Name of the other run.
    """
    if not pairs:
        return f"{first} and {other} share no (N, K), so no rows are paired."
    last = pairs[-1]
    verdict = "separates" if last["separated"] else "does not separate"
    text = (
        f"At N={last['population']} K={last['ensemble_size']} the data {verdict} {first} and "
        f"{other}: {_difference(last)}. Only one of them is right on {last['only_first']} + "
        f"{last['only_other']} of {last['rows']} rows (exact McNemar p {_p(last['p_value'])})."
    )
    if len(pairs) > 1:
        separated = sum(pair["separated"] for pair in pairs)
        text += f" The data separates them at {separated} of {len(pairs)} (N, K), each tested "
        text += f"alone at {100 * (1 - LEVEL):.0f} %."
    return text


def _pair(
    population: int, size: int, first: Sequence[bool], other: Sequence[bool]
) -> PairedEnsembles:
    gaps = [int(one) - int(two) for one, two in zip(first, other, strict=True)]
    rows, only_first, only_other = len(gaps), gaps.count(1), gaps.count(-1)
    accuracy, other_accuracy = sum(first) / rows, sum(other) / rows
    p_value = mcnemar(only_first, only_other)
    return PairedEnsembles(
        population=population,
        ensemble_size=size,
        rows=rows,
        accuracy=accuracy,
        interval=accuracy_interval(accuracy, rows),
        other_accuracy=other_accuracy,
        other_interval=accuracy_interval(other_accuracy, rows),
        difference=sum(gaps) / rows,
        difference_interval=mean_interval(gaps),
        only_first=only_first,
        only_other=only_other,
        p_value=p_value,
        separated=p_value < 1 - LEVEL,
    )


def _difference(pair: PairedEnsembles) -> str:
    points = 100 * pair["difference"]
    interval = pair["difference_interval"]
    text = f"{points:+.1f} points" if points else "no difference"
    if interval is None:
        return text
    return f"{text}, 95 % interval {100 * interval.lower:+.1f} to {100 * interval.upper:+.1f}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
