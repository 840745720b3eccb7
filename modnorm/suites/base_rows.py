"""The rows of the unperturbed model, which every cell measures."""

from collections.abc import Sequence

from modnorm.suites.declaration import Suite
from modnorm.suites.figures import Figure, FigureRow, PublishedTable
from modnorm.suites.outcomes import Outcomes
from modnorm.suites.points import Order, Point, labels_of
from modnorm.suites.tables import MetricTable

_OF_THE_BASE = frozenset({"model", "task", "engine"})
"""Sections of a spec that the unperturbed model's figures depend on."""


def base_rows(  # noqa: PLR0913, PLR0917 - all that rows are made of
    spec: MetricTable,
    label: str,
    suite: Suite,
    points: Sequence[Point],
    columns: Sequence[tuple[str, ...]],
    outcomes: Outcomes,
    published: PublishedTable,
) -> list[FigureRow]:
    """Return a row for each model and task among the rows of a table.

    Args:
        spec: The table.
        label: What stands in the place of the first axis that the base does not depend on.
        suite: The suite.
        points: The points of the table.
        columns: Its columns, by their options.
        outcomes: What is finished.
        published: The paper's numbers.
    """
    kept = [axis for axis in spec.rows if _chooses_base(suite, axis)]
    rows = []
    for group in Order(suite).distinct(points, kept):
        labels = _labels(spec.rows, dict(zip(kept, group, strict=True)), label)
        inside = [point for point in points if labels_of(point, kept) == group]
        figures = [
            _figure(
                [point for point in inside if labels_of(point, spec.columns) == column],
                outcomes,
                published,
                (*filter(None, labels), *column),
            )
            for column in columns
        ]
        rows.append(FigureRow(labels, tuple(figures)))
    return rows


def _chooses_base(suite: Suite, axis: str) -> bool:
    """Tell whether the options of an axis are other models or tasks."""
    fragments = [*suite.axes.get(axis, {}).values()]
    fragments += [override.set for override in suite.overrides if axis in override.where]
    return any(_OF_THE_BASE & fragment.keys() for fragment in fragments)


def _labels(axes: Sequence[str], kept: dict[str, str], label: str) -> tuple[str, ...]:
    free = [axis for axis in axes if axis not in kept]
    if not free:
        return (*(kept[axis] for axis in axes[:-1]), f"{kept[axes[-1]]}, {label}")
    return tuple(kept.get(axis, label if axis == free[0] else "") for axis in axes)


def _figure(
    points: Sequence[Point],
    outcomes: Outcomes,
    published: PublishedTable,
    place: tuple[str, ...],
) -> Figure:
    values = {}
    for point in points:
        outcome = outcomes.of(point.cell)
        base = None if outcome is None else outcome.document["base"]["heldout_metric"]
        if base is not None:
            values[point.cell.seed] = 100 * base
    return Figure(values, len({point.cell.seed for point in points}), published.find(place))
