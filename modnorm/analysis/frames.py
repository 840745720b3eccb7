"""Finished runs as tidy frames: every table of `analyze` and of suites is a pivot of them.

Each function returns a frame of one run; one without rows has no columns.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from modnorm.analysis.run import Run
from modnorm.errors import InvalidInputError

GROUP = ["model", "task", "method"]
"""Columns that are equal in runs which differ in their seed alone."""
RUN = [*GROUP, "seed"]
PLACE = [*RUN, "N", "K"]
"""Columns that name one ensemble of one run."""


def name_runs(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return the values of `RUN` of each run.

    A method has its radius in its name if it has several on the same model and task.
    """
    specs = [run.document["spec"] for run in runs]
    groups = [tuple(spec[name]["name"] for name in ("model", "task", "method")) for spec in specs]
    radii = [spec["method"].get("radius") for spec in specs]
    counts = Counter(group for group, _ in set(zip(groups, radii, strict=True)))
    names: dict[tuple[object, ...], Run] = {}
    for run, group, radius in zip(runs, groups, radii, strict=True):
        model, task, method = group
        if counts[group] > 1:
            method = f"{method} {radius}"
        name = model, task, method, run.document["spec"]["population"].get("seed")
        if name in names:
            raise InvalidInputError(
                f"{names[name].path} and {run.path} have the same model, task, method, "
                "radius and seed",
                field="directory",
                remedy="analyze them separately",
            )
        names[name] = run
    return [dict(zip(RUN, name, strict=True)) for name in names]


def read_runs(
    runs: Sequence[Run], names: Sequence[Mapping[str, object]], read: Callable[[Run], pd.DataFrame]
) -> pd.DataFrame:
    """Return the lines that a function reads from each run, below each other, after its names."""
    parts = [
        pd.DataFrame([name]).merge(lines, how="cross")
        for run, name in zip(runs, names, strict=True)
        if len(lines := read(run))
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def ensembles(run: Run) -> pd.DataFrame:
    """Return a row for each (N, K): `accuracy` in percent, `rows`, `evaluations`."""
    return pd.DataFrame(
        {
            "N": each["population"],
            "K": each["ensemble_size"],
            "accuracy": 100 * each["metric"],
            "rows": each["rows"],
            "evaluations": each["budget"]["total"],
        }
        for each in run.document["ensembles"]
    )


def candidates(run: Run) -> pd.DataFrame:
    """Return a row for each scored candidate: `N` of its population, `index`, and its gains.

    `reward_gain` and `accuracy_gain` are over the base, in percentage points.
    """
    base, counts = run.document["base"], run.document["candidates"]
    # Earlier versions stopped candidates that could be no experts: their rewards are unknown.
    has_stopped = counts["scored"] + len(counts["failed"]) < counts["total"]
    if has_stopped or base["selection_reward"] is None:
        return pd.DataFrame()
    population = run.candidates_frame
    scored = population[population["selection_reward"].notna()]
    accuracies = scored["selection_correct"] / scored["selection_answers"]
    base_accuracy = base["selection_accuracy"]
    accuracy = math.nan if base_accuracy is None else base_accuracy
    return pd.DataFrame(
        {
            "N": len(population),
            "index": scored["index"],
            "reward_gain": 100 * (scored["selection_reward"] - base["selection_reward"]),
            "accuracy_gain": 100 * (accuracies - accuracy),
        }
    )


def votes(run: Run) -> pd.DataFrame:
    """Return a row for each (N, K) and held-out `row`: `correct`, and `right_experts`."""
    return run.vote_counts().rename(
        columns={"population": "N", "ensemble_size": "K", "correct_support": "right_experts"}
    )


def times(run: Run) -> pd.DataFrame:
    """Return a row with the seconds of each phase, the scope in `timings.json`.

    `search` and `end_to_end` have the paper's scope; `wall_*` are elapsed times and `device_*`
    sums over the workers.
    """
    scope = run.timings().get("scope")
    row: dict[str, object] = {}
    for name, value in scope.items() if isinstance(scope, dict) else ():
        parts = value.items() if isinstance(value, dict) else ()
        row |= {f"{name}_{phase}": seconds for phase, seconds in parts} if parts else {name: value}
    return pd.DataFrame([row])
