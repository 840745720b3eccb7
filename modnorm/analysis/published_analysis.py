"""The published figures, recomputed from the published inputs."""

from pathlib import Path

import pandas as pd

from modnorm.analysis.analyses import Analysis, analyze
from modnorm.analysis.published import REFERENCE, read_inputs, read_summaries
from modnorm.analysis.published_check import check_summaries


def analyze_published(directory: Path) -> tuple[Analysis, pd.DataFrame]:
    """Analyze the `results/` directory of the public code.

    Args:
        directory: A copy of it, or of some of its files.

    Returns:
        The analysis, and how far it reproduces the published summaries (`check_summaries`). A
        table whose inputs are not in the directory is the published summary itself.

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
    scaling = {"overview": found["population-scaling"]} if "population-scaling" in found else {}
    check = check_summaries({**found, **scaling}, summaries)
    return Analysis(REFERENCE, {**summaries, **found}), check


def _shown(table: pd.DataFrame, summary: pd.DataFrame | None) -> pd.DataFrame:
    """Return the rows of the tasks that a published summary has; the inputs have more."""
    return table if summary is None else table[table["task"].isin(summary["task"])]
