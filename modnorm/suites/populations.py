"""Tables with a row a group of cells: densities, survival, wall-clock times."""

from collections.abc import Callable, Mapping, Sequence

from modnorm.analysis.tail import gains, survival
from modnorm.errors import InvalidInputError
from modnorm.suites.cells import Cell, place_of
from modnorm.suites.comparing import Filling, require_full, reward_gains, seconds
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.outcomes import Outcome
from modnorm.suites.tables import DensityTable, DevelopmentTable, SurvivalTable, WallClockTable

Measure = Callable[[Outcome], Sequence[float]]
_TIMES = {"Search": "search", "Total": "end_to_end"}
RowTables = DensityTable | DevelopmentTable | SurvivalTable | WallClockTable


def density_table(spec: DensityTable, filling: Filling) -> BuiltTable:
    """Fill solution densities: candidates by the gain of their accuracy, in percent."""
    columns = tuple(f"t={threshold:g}" for threshold in spec.thresholds)

    def measure(outcome: Outcome) -> Sequence[float]:
        require_full(outcome, filling.field)
        return [100 * part for part in survival(accuracy_gains(outcome), spec.thresholds)]

    return filled(spec, filling, columns, measure)


def survival_table(spec: SurvivalTable, filling: Filling) -> BuiltTable:
    """Fill survival curves: candidates by the gain of their selection reward, in percent."""
    columns = tuple(f"{threshold:g}" for threshold in spec.thresholds)

    def measure(outcome: Outcome) -> Sequence[float]:
        require_full(outcome, filling.field)
        return [100 * part for part in survival(reward_gains(outcome), spec.thresholds)]

    return filled(spec, filling, columns, measure)


def wall_clock_table(spec: WallClockTable, filling: Filling) -> BuiltTable:
    """Fill times in minutes; a run that several workers shared is told in a note."""

    def measure(outcome: Outcome) -> Sequence[float]:
        return [seconds(outcome, scope) / 60 for scope in _TIMES.values()]

    shared = [
        cell.id
        for cell in filling.cells
        if (outcome := filling.outcomes.of(cell)) is not None and _workers(outcome) > 1
    ]
    note = (
        f"not comparable with one engine a run: {', '.join(shared)} were spread over several "
        "workers; search is the sum of their times, the total what passed"
    )
    return filled(spec, filling, tuple(_TIMES), measure, [note] if shared else [])


def accuracy_gains(outcome: Outcome) -> tuple[float, ...]:
    """Return the accuracy gains of a population on its selection rows, in percentage points.

    Raises:
        InvalidInputError: answers were not counted when it ran.
    """
    base = outcome.document["base"].get("selection_accuracy")
    found = [candidate.accuracy for candidate in outcome.candidates]
    known = [accuracy for accuracy in found if accuracy is not None]
    if base is None or len(known) < len(found):
        raise InvalidInputError(
            f"{outcome.cell.id} does not tell how many answers are right", field="directory"
        )
    return gains(known, base)


def _workers(outcome: Outcome) -> int:
    scope = outcome.timings.get("scope")
    found = scope.get("workers") if isinstance(scope, Mapping) else 0
    return int(found) if isinstance(found, int) else 0


def filled(
    spec: RowTables,
    filling: Filling,
    columns: tuple[str, ...],
    measure: Measure,
    notes: Sequence[str] = (),
) -> BuiltTable:
    """Fill a table with a row a group of cells.

    Args:
        spec: The table.
        filling: What it is filled from.
        columns: Its columns.
        measure: Gives the number of each column for a finished cell.
        notes: What stands under it.

    Raises:
        InvalidInputError: two cells of a seed are in one row.
    """
    published = PublishedTable(spec.paper.values if spec.paper else None, f"{filling.field}.paper")
    rows = [
        FigureRow(labels, _figures(cells, filling, measure, labels, columns, published))
        for labels, cells in _groups(spec, filling).items()
    ]
    return BuiltTable(
        title=spec.title,
        source=spec.source,
        headings=spec.rows,
        columns=columns,
        rows=tuple(rows),
        digits=spec.digits,
        notes=tuple(notes),
        paper_source=spec.paper.source if spec.paper else None,
    )


def _groups(spec: RowTables, filling: Filling) -> dict[tuple[str, ...], list[Cell]]:
    groups: dict[tuple[str, ...], list[Cell]] = {}

    def place(cell: Cell) -> list[int]:
        return [place_of(filling.suite, axis, cell.labels[axis]) for axis in spec.rows]

    for cell in sorted(filling.cells, key=place):
        labels = tuple(cell.labels[axis] for axis in spec.rows)
        groups.setdefault(labels, []).append(cell)
    for labels, cells in groups.items():
        if len({cell.seed for cell in cells}) < len(cells):
            raise InvalidInputError(
                f"several cells are at {' / '.join(labels)}",
                field=filling.field,
                remedy="name every axis under rows",
            )
    return groups


def _figures(  # noqa: PLR0913, PLR0917 - all that a row is made of
    cells: Sequence[Cell],
    filling: Filling,
    measure: Measure,
    labels: tuple[str, ...],
    columns: tuple[str, ...],
    published: PublishedTable,
) -> tuple[Figure, ...]:
    measured = {
        cell.seed: measure(outcome)
        for cell in cells
        if (outcome := filling.outcomes.of(cell)) is not None
    }
    return tuple(
        Figure(
            {seed: numbers[place] for seed, numbers in measured.items()},
            len(cells),
            published.find((*labels, column)),
        )
        for place, column in enumerate(columns)
    )
