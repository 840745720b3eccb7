"""Statistics over seeds, and pairs of a method with the reference method by seed."""

import math
from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from modnorm.analysis.run_tables import GROUP
from modnorm.analysis.uncertainty import ConfidenceInterval, mean_interval
from modnorm.errors import InvalidInputError

REFERENCE = "reference_"
"""Prefix of the columns of the reference in a paired table."""


def over_seeds(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """Return mean, sample SD, minimum and maximum of a column over the seeds.

    Args:
        table: A table with a column `seed`.
        keys: Columns that name a row of the result.
        value: The column.

    Returns:
        The keys, `seeds`, and `mean`, `sd`, `min` and `max`; the SD of one seed is missing.
    """
    found = table.groupby(list(keys), sort=False, dropna=False)[value]
    return found.agg(seeds="count", mean="mean", sd="std", min="min", max="max").reset_index()


def with_intervals(summary: pd.DataFrame, table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Add `lower` and `upper`, the bootstrap interval of each mean over seeds.

    Args:
        summary: What `over_seeds` returned.
        table: The table that it summarised.
        value: The column that it summarised.
    """
    return with_bounds(summary, table, lambda lines: mean_interval(lines[value].tolist()))


def with_bounds(
    summary: pd.DataFrame,
    table: pd.DataFrame,
    bounds: Callable[[pd.DataFrame], ConfidenceInterval | None],
) -> pd.DataFrame:
    """Add `lower` and `upper` to a summary.

    Args:
        summary: What `over_seeds` returned.
        table: The table that it summarised.
        bounds: Returns the interval of a row from the lines that it summarises.
    """
    keys = list(summary.columns[: summary.columns.get_loc("seeds")])
    groups = table.groupby(keys, sort=False, dropna=False)
    found = [bounds(lines) or (math.nan, math.nan) for _, lines in groups]
    return summary.assign(
        lower=[float(lower) for lower, _ in found], upper=[float(upper) for _, upper in found]
    )


def places(lines: pd.DataFrame, prefix: str = "") -> Iterator[tuple[object, ...]]:
    """Yield the columns of `RUN`, N and K of each line; of the reference with its prefix."""
    names = ["model", "task", f"{prefix}method", "seed", f"{prefix}N", "K"]
    yield from lines[names].itertuples(index=False, name=None)


def choose_reference(table: pd.DataFrame, named: str | None) -> str | None:
    """Return the method that others are compared with.

    Args:
        table: A table with a column `method`.
        named: The method that the caller chose, if any.

    Returns:
        Its name: the caller's choice, RandOpt, or else the first method. None with a single
        method.

    Raises:
        InvalidInputError: no run is of the method that is named.
    """
    methods = list(dict.fromkeys(table["method"])) if len(table) else []
    if named is not None and named not in methods:
        raise InvalidInputError(
            f"no run is of the method {named!r}",
            field="reference",
            remedy=f"name one of {', '.join(map(str, methods))}",
        )
    if len(methods) < 2:
        return None
    isotropic = (method for method in methods if str(method).lower().startswith("randopt"))
    return named or next(isotropic, methods[0])


def paired(table: pd.DataFrame, reference: str | None, on: Sequence[str] = ()) -> pd.DataFrame:
    """Pair the rows of each method with those of the reference on one model, task and seed.

    Args:
        table: A table that begins with the columns of `RUN`.
        reference: Method of the reference; without one there are no pairs.
        on: Further columns that have to be equal.

    Returns:
        A row for each pair. Columns of the reference begin with `reference_`.
    """
    if reference is None or not len(table):
        return pd.DataFrame()
    keys = [name for name in GROUP if name != "method"] + ["seed", *on]
    is_reference = table["method"] == reference
    theirs = table[is_reference]
    theirs = theirs.rename(columns={c: f"{REFERENCE}{c}" for c in theirs if c not in keys})
    return table[~is_reference].merge(theirs, on=keys)
