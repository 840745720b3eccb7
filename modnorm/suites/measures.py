"""Measures of a finished cell, as rows of the suite's tidy table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import pandas as pd

from modnorm.analysis.distillation import (
    DistillationDocument,
    best_entry,
    first_search,
    gain_kept,
)
from modnorm.analysis.run_files import read_candidate_rows, read_timings, read_vote_lines
from modnorm.analysis.tail import gains
from modnorm.errors import InvalidInputError
from modnorm.suites.outcomes import CellOutcome

Read = Callable[[CellOutcome], Iterator[tuple[object, ...]]]
"""Yields the keys and the value of each row."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A kind of value that cells measure."""

    read: Read
    keys: tuple[str, ...] = ()
    """`N` and `K` for a measure of an ensemble; `item` if a cell has several values."""


def timing_scope(outcome: CellOutcome) -> Mapping[str, float]:
    """Return the numbers under `scope` in `timings.json`: seconds, and the number of workers."""
    scope = read_timings(outcome.directory).get("scope")
    numbers = scope.items() if isinstance(scope, dict) else ()
    return {name: number for name, number in numbers if isinstance(number, int | float)}


def _metrics(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    for entry in outcome.document["ensembles"]:
        yield entry["population"], entry["ensemble_size"], 100 * entry["metric"]


def _evaluations(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    for entry in outcome.document["ensembles"]:
        yield entry["population"], entry["ensemble_size"], entry["budget"]["total"]


def _base(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    metric = outcome.document["base"]["heldout_metric"]
    if metric is not None:
        yield (100 * metric,)


def _reward_gains(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    base = outcome.document["base"]["selection_reward"]
    if base is None:
        raise InvalidInputError(
            f"{outcome.cell.id} has not measured the unperturbed model", field="directory"
        )
    scored = _scored_candidates(outcome)
    yield from zip(scored["index"], gains(scored["selection_reward"].tolist(), base), strict=True)


def _accuracy_gains(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    base = outcome.document["base"]["selection_accuracy"]
    scored = _scored_candidates(outcome)
    if base is None or not scored["selection_answers"].all():
        raise InvalidInputError(
            f"{outcome.cell.id} does not store how many answers are right", field="directory"
        )
    accuracies = scored["selection_correct"] / scored["selection_answers"]
    yield from zip(scored["index"], gains(accuracies.tolist(), base), strict=True)


def _scored_candidates(outcome: CellOutcome) -> pd.DataFrame:
    """Return the scored candidates in order.

    Raises:
        InvalidInputError: the file is damaged, or early stop ended candidates.
    """
    candidates = read_candidate_rows(outcome.directory)
    rows = outcome.document["data"]["selection"]["rows"]
    is_scored = candidates["selection_reward"].notna()
    is_whole = is_scored & (candidates["selection_answers"] == rows)
    if not (is_whole | (candidates["state"] == "failed")).all():
        raise InvalidInputError(
            f"{outcome.cell.id} did not score all rows of all candidates",
            field="population.statistics",
            remedy="set it to full for this suite",
        )
    return candidates[is_scored]


def _seconds(scope: str) -> Read:
    def read(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
        if outcome.distillation is not None:
            raise InvalidInputError(
                f"{outcome.cell.id} is a distillation, whose time is not that of one search",
                field="directory",
            )
        seconds = timing_scope(outcome).get(scope, 0)
        if seconds <= 0:
            raise InvalidInputError(
                f"{outcome.directory / 'timings.json'} has no time of {scope}", field="directory"
            )
        yield (seconds,)

    return read


def _states(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    """Yield the accuracy of each state by its updates; that of 0 is the unperturbed model."""
    entry, first = outcome.document["iterative"], outcome.document["base"]["heldout_metric"]
    if entry is None or first is None:
        raise InvalidInputError(
            f"{outcome.cell.id} has no results of its states", field="directory"
        )
    yield 0, 100 * first
    for state in entry["states"]:
        if (accuracy := state["heldout_metric"]) is not None:
            yield state["updates"], 100 * accuracy


def _students(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    """Yield the held-out accuracy of each round's student, by round."""
    for each in _distillation(outcome)["rounds"][1:]:
        if (metric := each["heldout"]["metric"]) is not None:
            yield each["round"], 100 * metric


def _best_student(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    metric = best_entry(_distillation(outcome))["heldout"]["metric"]
    if metric is not None:
        yield (100 * metric,)


def _first_search(
    part: Literal["best_expert", "vote"],
) -> Read:
    def read(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
        metric = first_search(_distillation(outcome))[part]["metric"]
        if metric is not None:
            yield (100 * metric,)

    return read


def _gain_kept(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    kept = gain_kept(_distillation(outcome))
    if kept is not None:
        yield (100 * kept,)


def _distillation(outcome: CellOutcome) -> DistillationDocument:
    if outcome.distillation is None:
        raise InvalidInputError(
            f"{outcome.cell.id} is no distillation: it has no rounds", field="directory"
        )
    return outcome.distillation


def _votes(outcome: CellOutcome) -> Iterator[tuple[object, ...]]:
    columns = ["population", "ensemble_size", "row", "skipped", "correct", "correct_support"]
    votes = read_vote_lines(outcome.directory).astype({"skipped": bool})
    yield from votes[columns].itertuples(index=False, name=None)


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "metric": Measure(_metrics, ("N", "K")),
        "evaluations": Measure(_evaluations, ("N", "K")),
        "base": Measure(_base),
        "reward_gain": Measure(_reward_gains, ("item",)),
        "accuracy_gain": Measure(_accuracy_gains, ("item",)),
        "search": Measure(_seconds("search")),
        "end_to_end": Measure(_seconds("end_to_end")),
        "state": Measure(_states, ("item",)),
        "rank_1": Measure(_first_search("best_expert")),
        "vote": Measure(_first_search("vote")),
        "student": Measure(_students, ("item",)),
        "best_student": Measure(_best_student),
        "gain_kept": Measure(_gain_kept),
        "votes": Measure(_votes, ("N", "K", "item", "is_partial", "is_correct")),
    }
)
"""Metrics, `base` and states are percentages; gains are percentage points over the unperturbed
model; votes are numbers of right experts. Items are candidates, updates, rounds and held-out
rows. `rank_1` to `gain_kept` are of distillations only: the first search, then the students."""
