"""Comparison of the published summaries with our analysis of the published inputs."""

from collections.abc import Mapping

import pandas as pd

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
