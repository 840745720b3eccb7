"""The published figures, recomputed from the published inputs."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from modnorm.analysis.analyses import Analysis, analyze
from modnorm.analysis.population_tails import population_ratios, with_required
from modnorm.analysis.published import REFERENCE, read_inputs, read_summaries
from modnorm.analysis.support import decomposition_means, support_bin_means

_GIVEN = ["percent"]
"""Columns that tables take from the published figures of each seed as they are."""
_KEYS = (
    "model", "task", "method", "seed", "N", "reference_method", "reference_N", "K",
    "threshold", "bin", "term",
)  # fmt: skip
TOLERANCE = 1e-9
"""Largest difference of a value that counts as reproduced, relative to 1 or the value."""


def check_summaries(
    ours: Mapping[str, pd.DataFrame], published: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the published summaries with our tables, value by value.

    Args:
        ours: Tables of `analyze`, from the published inputs.
        published: What `read_summaries` returned.

    Returns:
        A row for each summary and column: how many `values` both have, how many `reproduced`, and
        the `largest_difference`. A summary without its inputs is absent.
    """
    rows = [
        {"summary": name, **row}
        for name, theirs in published.items()
        if (table := ours.get(name)) is not None
        for row in _columns(table, theirs)
    ]
    return pd.DataFrame(rows)


def _columns(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[dict[str, object]]:
    keys = [name for name in _KEYS if name in ours and name in theirs]
    values = [name for name in theirs if name in ours and name not in keys]
    both = ours[[*keys, *values]].merge(
        theirs[[*keys, *values]], on=keys, suffixes=("", "_theirs")
    )
    rows = []
    for name in values:
        pair = both[[name, f"{name}_theirs"]].dropna().astype(float)
        differences = (pair[name] - pair[f"{name}_theirs"]).abs()
        limit = TOLERANCE * pair[f"{name}_theirs"].abs().clip(lower=1)
        rows.append(
            {
                "column": name,
                "values": len(pair),
                "reproduced": int((differences <= limit).sum()),
                "largest_difference": differences.max() if len(pair) else None,
            }
        )
    return rows


def analyze_published(directory: Path) -> tuple[Analysis, pd.DataFrame]:
    """Analyze the `results/` directory of the public code.

    Args:
        directory: A copy of it, or of some of its files.

    Returns:
        The analysis, and how far it reproduces the published summaries (`check_summaries`). Where
        the inputs are not in the directory, a table follows from the published figures of each
        seed, or else is the published summary itself.

    Raises:
        InvalidInputError: a file has other columns.
    """
    summaries = read_summaries(directory)
    survival = summaries.get("reward-survival", pd.DataFrame(columns=["task", "threshold"]))
    thresholds = {
        str(task): sorted(set(points)) for task, points in survival.groupby("task")["threshold"]
    }
    inputs = read_inputs(directory)
    found = {
        name: _shown(table, summaries.get(name))
        for name, table in analyze(inputs, survival_thresholds=thresholds).tables.items()
    }
    found = {name: table for name, table in found.items() if len(table)}
    derived = _from_summaries(summaries)
    scaling = {"overview": found["population-scaling"]} if "population-scaling" in found else {}
    computed = {
        name: table.drop(columns=_GIVEN, errors="ignore") for name, table in derived.items()
    }
    check = check_summaries({**computed, **found, **scaling}, summaries)
    return Analysis(REFERENCE, {**summaries, **derived, **found}), check


def _from_summaries(summaries: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the summaries of the published figures of each seed."""
    found = {}
    if (shares := summaries.get("required-populations")) is not None:
        found["required-populations"] = with_required(shares)
        found["population-ratios"] = population_ratios(found["required-populations"], REFERENCE)
    if (bins := summaries.get("support-bins")) is not None:
        found["support-bin-means"] = support_bin_means(bins)
    if (terms := summaries.get("decomposition-by-seed")) is not None:
        found["decomposition"] = decomposition_means(terms)
    return found


def _shown(table: pd.DataFrame, summary: pd.DataFrame | None) -> pd.DataFrame:
    """Return the rows of the tasks that a published summary has; the inputs have more."""
    return table if summary is None else table[table["task"].isin(summary["task"])]
