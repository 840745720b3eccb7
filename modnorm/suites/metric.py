"""Tables of held-out metrics: places by axes, N and K; numbers over seeds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from modnorm.errors import InvalidInputError
from modnorm.suites.cells import Cell, ensembles_of, place_of
from modnorm.suites.declaration import Suite
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.outcomes import Outcomes
from modnorm.suites.tables import Contrast, MetricTable, Pick

_NUMBERS = ("N", "K")
_METRIC, _REDUCTION = "metric (%)", "Eval. red."


@dataclass(frozen=True, slots=True)
class Point:
    """One ensemble of one cell."""

    cell: Cell
    population: int
    ensemble_size: int

    def label(self, axis: str) -> str:
        """Return the option on an axis, `N` and `K` among them."""
        if axis in _NUMBERS:
            return str(self.population if axis == "N" else self.ensemble_size)
        return self.cell.labels[axis]

    def fits(self, pick: Pick) -> bool:
        """Tell whether it is where a pick points to."""
        return all(self.label(axis) == str(option) for axis, option in pick.items())

    def value(self, outcomes: Outcomes) -> float | None:
        """Return the held-out metric in percent; None while the cell is not finished."""
        outcome = outcomes.of(self.cell)
        found = None if outcome is None else outcome.metric(self.population, self.ensemble_size)
        return None if found is None else 100 * found

    def cost(self, outcomes: Outcomes) -> int | None:
        """Return the evaluations that were counted; None while the cell is not finished."""
        outcome = outcomes.of(self.cell)
        return None if outcome is None else outcome.cost(self.population, self.ensemble_size)


def points_of(cells: Iterable[Cell]) -> Iterator[Point]:
    """Yield every ensemble of every cell; an iterative method has its one model."""
    for cell in cells:
        for population, size in ensembles_of(cell.spec):
            yield Point(cell, population, size)


def by_seed(
    points: Iterable[Point], outcomes: Outcomes, *, field: str
) -> tuple[dict[int, float], int]:
    """Return the numbers of one place by seed, and how many there should be.

    Raises:
        InvalidInputError: two cells of one seed are in the same place.
    """
    values, seeds = {}, set()
    for point in points:
        if point.cell.seed in seeds:
            raise InvalidInputError(
                f"several cells are in one place, {point.cell.id} among them",
                field=field,
                remedy="name every axis under rows, columns or at, N and K among them",
            )
        seeds.add(point.cell.seed)
        found = point.value(outcomes)
        if found is not None:
            values[point.cell.seed] = found
    return values, len(seeds)


def metric_table(
    spec: MetricTable, suite: Suite, cells: Sequence[Cell], outcomes: Outcomes, field: str
) -> BuiltTable:
    """Fill a table of held-out metrics.

    Raises:
        InvalidInputError: the table does not tell the cells apart.
    """
    points = [point for point in points_of(cells) if point.fits(_at(spec, point))]
    order = _Order(suite)
    rows = order.distinct(points, spec.rows)
    columns = order.distinct(points, spec.columns)
    published = PublishedTable(spec.paper.values if spec.paper else None, f"{field}.paper.values")
    named = (_METRIC,) if spec.reduction else ()

    def at(row: tuple[str, ...], column: tuple[str, ...]) -> list[Point]:
        return [
            point
            for point in points
            if _labels(point, spec.rows) == row and _labels(point, spec.columns) == column
        ]

    def figure(row: tuple[str, ...], column: tuple[str, ...]) -> Figure:
        values, seeds = by_seed(at(row, column), outcomes, field=field)
        return Figure(values, seeds, published.find((*row, *column, *named)))

    built = [FigureRow(row, tuple(figure(row, column) for column in columns)) for row in rows]
    if spec.base_row is not None:
        built.append(_base_row(spec, spec.base_row, points, columns, outcomes, published))
    notes = tuple(_contrasts(spec, built, columns))
    names = [" ".join(_named(spec.columns, column)) for column in columns]
    if spec.reduction:
        names.append(_REDUCTION)
        built = [
            FigureRow(row.labels, (*row.figures, _reduction(spec, row, at, outcomes, published)))
            for row in built
        ]
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


def _at(spec: MetricTable, point: Point) -> Pick:
    return {**spec.at, **spec.at_row.get(point.label(spec.rows[0]), {})}


def _labels(point: Point, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(point.label(axis) for axis in axes)


def _named(axes: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return labels as headings: N and K with their names."""
    return [
        f"{axis}={label}" if axis in _NUMBERS else label
        for axis, label in zip(axes, labels, strict=True)
    ]


@dataclass(frozen=True)
class _Order:
    """The order of options as the suite declares them; N and K by size."""

    suite: Suite

    def distinct(
        self, points: Iterable[Point], axes: Sequence[str]
    ) -> tuple[tuple[str, ...], ...]:
        found = {_labels(point, axes) for point in points}
        return tuple(sorted(found, key=lambda labels: self._key(axes, labels)))

    def _key(self, axes: Sequence[str], labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(place_of(self.suite, a, label) for a, label in zip(axes, labels, strict=True))


def _base_row(  # noqa: PLR0913, PLR0917 - all that a row is made of
    spec: MetricTable,
    label: str,
    points: Sequence[Point],
    columns: Sequence[tuple[str, ...]],
    outcomes: Outcomes,
    published: PublishedTable,
) -> FigureRow:
    """Return the row of the unperturbed model; any cell of a seed has measured it."""
    figures = []
    for column in columns:
        values, seeds = {}, set()
        for point in points:
            if _labels(point, spec.columns) != column:
                continue
            seeds.add(point.cell.seed)
            outcome = outcomes.of(point.cell)
            base = None if outcome is None else outcome.document["base"]["heldout_metric"]
            if base is not None:
                values[point.cell.seed] = 100 * base
        figures.append(Figure(values, len(seeds), published.find((label, *column))))
    return FigureRow((label, *[""] * (len(spec.rows) - 1)), tuple(figures))


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
