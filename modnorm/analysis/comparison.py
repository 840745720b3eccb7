"""Runs side by side, with the conditions that make them incomparable."""

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import pandas as pd

from modnorm.analysis.document import ResultsDocument, describe_overlap
from modnorm.analysis.environments import Environment, describe_differing, differing_settings
from modnorm.analysis.run import Run
from modnorm.analysis.uncertainty import LEVEL, ConfidenceInterval, holm, mcnemar, mean_interval

_PROFILE, _PROMPTS, _HELDOUT = "profile", "prompts", "held-out rows"
_UNPAIRED = frozenset({"task", "scorer", _HELDOUT})
"""Conditions under which an answer to one row is right; others may differ between paired runs."""


Verdicts = Mapping[tuple[int, int], Sequence[bool]]
"""By (N, K), whether the vote on each held-out row is right."""

Metrics = Mapping[tuple[int, int], float]
"""By (N, K), the metric of the task, a fraction."""


class PairedEnsembles(TypedDict):
    """The ensembles of two runs at one (N, K), on the same rows; fractions of the rows."""

    population: int
    ensemble_size: int
    rows: int
    accuracy: float
    """Share of the rows that the first run answers right."""
    metric: float
    """Metric of the task for the first run; of balanced accuracies it is not `accuracy`."""
    other_metric: float
    other_accuracy: float
    difference: float
    """Row accuracy of the first run less that of the other."""
    difference_interval: ConfidenceInterval | None
    """Paired bootstrap over rows; None with a single row."""
    only_first: int
    """Rows that only the first run answers right."""
    only_other: int
    rows_only_first: list[int]
    """Indices of the rows that only the first run answers right."""
    rows_only_other: list[int]
    p_value: float
    """p-value of McNemar's exact test."""
    adjusted_p_value: float
    """p-value adjusted by Holm's method for the tests at all (N, K) of both runs."""
    separated: bool
    """Whether the adjusted test rejects, at 5 %, that both runs are equally often right."""


def verdicts_of(votes: pd.DataFrame) -> Verdicts:
    """Return whether each vote is right, from `modnorm.analysis.run.Run.vote_counts`."""
    groups = votes.groupby(["population", "ensemble_size"])["correct"]
    found = {place: correct.tolist() for place, correct in groups}
    return cast("Verdicts", found)


def pair_ensembles(
    first: Verdicts, other: Verdicts, metrics: Sequence[Metrics] = ({}, {})
) -> list[PairedEnsembles]:
    """Compare two runs at every (N, K) that both have, by N, then K."""
    places = sorted(first.keys() & other.keys())
    gaps = [
        [int(one) - int(two) for one, two in zip(first[place], other[place], strict=True)]
        for place in places
    ]
    p_values = [mcnemar(each.count(1), each.count(-1)) for each in gaps]
    pairs = []
    for place, gap, p_value, adjusted in zip(places, gaps, p_values, holm(p_values), strict=True):
        rows = len(gap)
        shares = [sum(verdicts[place]) / rows for verdicts in (first, other)]
        pairs.append(
            PairedEnsembles(
                population=place[0],
                ensemble_size=place[1],
                rows=rows,
                accuracy=shares[0],
                metric=metrics[0].get(place, shares[0]),
                other_metric=metrics[1].get(place, shares[1]),
                other_accuracy=shares[1],
                difference=sum(gap) / rows,
                difference_interval=mean_interval(gap),
                only_first=gap.count(1),
                only_other=gap.count(-1),
                rows_only_first=[row for row, each in enumerate(gap) if each == 1],
                rows_only_other=[row for row, each in enumerate(gap) if each == -1],
                p_value=p_value,
                adjusted_p_value=adjusted,
                separated=adjusted < 1 - LEVEL,
            )
        )
    return pairs


def compares_metric(pair: PairedEnsembles) -> bool:
    """Return whether the row accuracy, which the tests compare, is the metric of the task."""
    both = (pair["metric"], pair["accuracy"]), (pair["other_metric"], pair["other_accuracy"])
    return all(math.isclose(metric, accuracy, abs_tol=1e-9) for metric, accuracy in both)


def describe_pairs(pairs: Sequence[PairedEnsembles], first: str, other: str) -> str:
    """State whether the data separates two runs at their largest (N, K), and at how many."""
    if not pairs:
        return f"{first} and {other} share no (N, K), so no rows are paired."
    last = pairs[-1]
    verdict = "separates" if last["separated"] else "does not separate"
    separated = sum(pair["separated"] for pair in pairs)
    text = (
        f"At N={last['population']} K={last['ensemble_size']} the data {verdict} {first} and "
        f"{other} ({100 * last['difference']:+.1f} points); it separates them at {separated} of "
        f"{len(pairs)} (N, K), by McNemar's exact test and Holm's method at "
        f"{100 * (1 - LEVEL):.0f} %."
    )
    if compares_metric(last):
        return text
    return (
        f"{text} The task's metric is {100 * last['metric']:.1f} % of {first} and "
        f"{100 * last['other_metric']:.1f} % of {other}; the tests compare row accuracy."
    )


class ComparisonRow(TypedDict):
    """One run in a comparison; metrics are held-out fractions, None if not measured."""

    run: str
    """Name of the run."""
    model: str
    task: str
    method: str
    radius: float | None
    seed: int | None
    """As in the spec."""
    population: int | None
    """The largest N."""
    base: float | None
    base_interval: ConfidenceInterval | None
    rank_1: float | None
    """Metric of the candidate at rank 1 by selection."""
    rank_1_interval: ConfidenceInterval | None
    ensembles: dict[int, float]
    """Metric by K, at the largest N."""
    intervals: dict[int, ConfidenceInterval | None]
    """Intervals of these metrics, by K."""
    differs: list[str]
    """Conditions in which the run differs from the first one; empty if both are comparable."""
    overlap: str | None
    """How many held-out rows have the prompts of selection rows, in words; None if none has."""
    mixed_environments: Mapping[str, Sequence[str]]
    """Settings in which the machines that answered this run differ."""
    other_environment: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    """Settings in which the machines of the first run and of this one differ, with the values of
    both. Rounding, and so an answer, may differ between them."""
    paired: list[PairedEnsembles]
    """The first run against this one, row by row; empty in the first row, and where the held-out
    rows, the task or the scorer differ."""
    verdict: str | None
    """Whether the data separates the first run from this one, in words; None in the first row."""


def compare_runs(results: Sequence[Run]) -> list[ComparisonRow]:
    """Return one row for each run, in order, with its differences from the first run."""
    if not results:
        return []
    first = results[0]
    expected, environments = conditions_of(first.document), first.environments()
    rows = [_row(result, expected, environments) for result in results]
    for row, result in zip(rows[1:], results[1:], strict=True):
        if faults := [fault for fault in row["differs"] if fault in _UNPAIRED]:
            why = f"{', '.join(faults)} differ."
            row["verdict"] = f"{first.name} and {row['run']} are not paired: {why}"
            continue
        row["paired"] = pair_ensembles(
            verdicts_of(first.vote_counts()),
            verdicts_of(result.vote_counts()),
            [
                {(each["population"], each["ensemble_size"]): each["metric"] for each in ensembles}
                for ensembles in (first.document["ensembles"], result.document["ensembles"])
            ],
        )
        row["verdict"] = describe_pairs(row["paired"], first.name, row["run"])
    return rows


def describe_differences(results: Sequence[Run]) -> list[str]:
    """Describe the differences of runs from the first run of their model name and task.

    Returns:
        A sentence for each run under other conditions, and for each in other environments.
    """
    first: dict[tuple[str, str], Run] = {}
    found = []
    for result in results:
        spec = result.document["spec"]
        place = (spec["model"]["name"], spec["task"]["name"])
        other = first.setdefault(place, result)
        if names := differing_conditions(
            conditions_of(result.document), conditions_of(other.document)
        ):
            found.append(
                f"not comparable: {result.name} differs from {other.name} in {', '.join(names)}"
            )
        settings = differing_settings(other.environments(), result.environments())
        if note := describe_differing(settings, other.name, result.name):
            found.append(note)
    return found


def _row(
    result: Run, expected: Mapping[str, object], environments: Sequence[Environment]
) -> ComparisonRow:
    document = result.document
    spec = document["spec"]
    largest = max((e["population"] for e in document["ensembles"]), default=None)
    found = conditions_of(document)
    base, rank_1 = document["base"], next(iter(document["experts"]), None)
    ensembles = [each for each in document["ensembles"] if each["population"] == largest]
    return ComparisonRow(
        run=result.name,
        model=spec["model"]["name"],
        task=spec["task"]["name"],
        method=spec["method"]["name"],
        radius=spec["method"].get("radius"),
        seed=spec["population"].get("seed"),
        population=largest,
        base=base["heldout_metric"],
        base_interval=base["heldout_interval"],
        rank_1=rank_1 and rank_1["heldout_metric"],
        rank_1_interval=rank_1 and rank_1["heldout_interval"],
        ensembles={each["ensemble_size"]: each["metric"] for each in ensembles},
        intervals={each["ensemble_size"]: each["interval"] for each in ensembles},
        differs=differing_conditions(found, expected),
        overlap=describe_overlap(document),
        mixed_environments=document["mixed_environments"],
        other_environment=differing_settings(environments, result.environments()),
        paired=[],
        verdict=None,
    )


def differing_conditions(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """Return the conditions that differ; prompts of other rows are left out, since they must."""
    # A method may need no profile.
    names = [
        name
        for name, value in found.items()
        if value != expected[name] and (name != _PROFILE or (value and expected[name]))
    ]
    return [name for name in names if name != _PROMPTS or _HELDOUT not in names]


def conditions_of(document: ResultsDocument) -> dict[str, object]:
    """Return the conditions that two comparable runs share."""
    spec, provenance = document["spec"], document["provenance"]
    return {
        "model": provenance.get("model_digest"),
        _PROFILE: provenance.get("profile_digest"),
        "task": spec["task"]["name"],
        "completion cap": provenance.get("max_tokens"),
        "scorer": provenance.get("scorer"),
        "selection rows": provenance.get("selection_digest"),
        _HELDOUT: provenance.get("heldout_digest"),
        _PROMPTS: provenance.get("prompts_digest"),
        "noise": spec["population"].get("noise"),
        "numerics": spec.get("engine", {}).get("numerics", "fast"),
    }
