"""Tables of held-out metrics: places by axes, N and K; numbers over seeds."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from modnorm.suites.base_rows import base_rows
from modnorm.suites.cells import Cell
from modnorm.suites.declaration import Suite
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.outcomes import Outcomes
from modnorm.suites.points import NUMBERS, Order, Point, by_seed, labels_of, points_of
from modnorm.suites.tables import Contrast, MetricTable, Pick

_METRIC, _REDUCTION = "metric (%)", "Eval. red."
_COUNTED = (
    f"{_REDUCTION} counts the answers that were given: what the exact early stop left out costs "
    "nothing, so that it may be above the paper's; population.statistics: full leaves out nothing"
)


def metric_table(
    spec: MetricTable, suite: Suite, cells: Sequence[Cell], outcomes: Outcomes, field: str
) -> BuiltTable:
    """Fill a table of held-out metrics.

    Raises:
        InvalidInputError: the table does not tell the cells apart.
    """
    points = [point for point in points_of(cells) if point.fits(_at(spec, point))]
    order = Order(suite)
    rows = order.distinct(points, spec.rows)
    columns = order.distinct(points, spec.columns)
    published = PublishedTable(spec.paper.values if spec.paper else None, f"{field}.paper.values")
    named = (_METRIC,) if spec.reduction else ()

    def at(row: tuple[str, ...], column: tuple[str, ...]) -> list[Point]:
        return [
            point
            for point in points
            if labels_of(point, spec.rows) == row and labels_of(point, spec.columns) == column
        ]

    def figure(row: tuple[str, ...], column: tuple[str, ...]) -> Figure:
        values, seeds = by_seed(at(row, column), outcomes, field=field)
        return Figure(values, seeds, published.find((*row, *column, *named)))

    built = [FigureRow(row, tuple(figure(row, column) for column in columns)) for row in rows]
    if spec.base_row is not None:
        built += base_rows(spec, spec.base_row, suite, points, columns, outcomes, published)
    notes = tuple(_contrasts(spec, built, columns))
    names = [" ".join(_named(spec.columns, column)) for column in columns]
    if spec.reduction:
        names.append(_REDUCTION)
        built = [
            FigureRow(row.labels, (*row.figures, _reduction(spec, row, at, outcomes, published)))
            for row in built
        ]
        if any(_may_leave_out(point, outcomes) for point in points):
            notes = (*notes, _COUNTED)
    return BuiltTable(
        title=spec.title,
        source=spec.source,
        headings=spec.rows,
        columns=tuple(name or _METRIC for name in names),
        rows=tuple(built),
        digits=spec.digits,
        notes=notes,
        paper_source=spec.paper.source if spec.paper else None,
    )


def _reduction(
    spec: MetricTable,
    row: FigureRow,
    at: Callable[[tuple[str, ...], tuple[str, ...]], list[Point]],
    outcomes: Outcomes,
    published: PublishedTable,
) -> Figure:
    """Return the cost of the reference over that of a row, as both were counted, by seed."""
    reference = tuple(
        str(spec.reduction.get(axis, label))
        for axis, label in zip(spec.rows, row.labels, strict=True)
    )
    theirs = {point.cell.seed: point.cost(outcomes) for point in at(reference, ())}
    ours = {point.cell.seed: point.cost(outcomes) for point in at(row.labels, ())}
    values = {
        seed: other / cost
        for seed, cost in ours.items()
        if cost and (other := theirs.get(seed)) is not None
    }
    return Figure(values, len(ours), published.find((*row.labels, _REDUCTION)))


def _may_leave_out(point: Point, outcomes: Outcomes) -> bool:
    """Whether early stop may have left out answers that the paper's formulas count."""
    experts_alone = point.cell.spec.population.statistics != "full"
    return experts_alone and point.cost(outcomes) is not None


def _at(spec: MetricTable, point: Point) -> Pick:
    return {**spec.at, **spec.at_row.get(point.label(spec.rows[0]), {})}


def _named(axes: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return labels as headings: N and K with their names."""
    return [
        f"{axis}={label}" if axis in NUMBERS else label
        for axis, label in zip(axes, labels, strict=True)
    ]


def _contrasts(
    spec: MetricTable, rows: Sequence[FigureRow], columns: Sequence[tuple[str, ...]]
) -> Iterator[str]:
    contrast = spec.contrast
    if contrast is None:
        return
    places: dict[tuple[str, ...], Figure] = {}
    axes = (*spec.rows, *spec.columns)
    for row in rows:
        for column, figure in zip(columns, row.figures, strict=True):
            places[(*row.labels, *column)] = figure
    at = axes.index(contrast.axis)
    for other in contrast.against:
        yield _verdict(contrast, other, places, at)


def _verdict(
    contrast: Contrast, other: str, places: Mapping[tuple[str, ...], Figure], at: int
) -> str:
    """Say where one option is above another, and where the paper's order is another."""
    ahead = tied = compared = printed = printed_ahead = printed_ties = 0
    differing = []
    for labels, ours in places.items():
        theirs = places.get((*labels[:at], other, *labels[at + 1 :]))
        if labels[at] != contrast.of or theirs is None:
            continue
        order, paper = _order(ours, theirs), _printed_order(ours, theirs)
        if order is not None:
            compared, ahead, tied = compared + 1, ahead + (order > 0), tied + (order == 0)
        if paper is not None:
            printed, printed_ahead = printed + 1, printed_ahead + (paper > 0)
            printed_ties += paper == 0
        if order is not None and paper is not None and order != paper:
            differing.append(" / ".join((*labels[:at], *labels[at + 1 :])) or "here")
    text = f"{contrast.of} above {other}: {ahead} of {compared} places{_ties(tied)}"
    if printed:
        text += f"; in the paper {printed_ahead} of {printed}{_ties(printed_ties)}"
    if differing:
        text += f"; another order than the paper's: {', '.join(differing)}"
    elif printed and compared:
        text += "; the same order as the paper's wherever both are known"
    return text


def _ties(count: int) -> str:
    return f", {count} tied" if count else ""


def _order(ours: Figure, theirs: Figure) -> int | None:
    if not (ours.is_complete and theirs.is_complete) or ours.mean is None or theirs.mean is None:
        return None
    return _sign(ours.mean - theirs.mean)


def _printed_order(ours: Figure, theirs: Figure) -> int | None:
    if ours.paper is None or theirs.paper is None:
        return None
    return _sign(ours.paper.mean - theirs.paper.mean)


def _sign(difference: float) -> int:
    return (difference > 1e-9) - (difference < -1e-9)
