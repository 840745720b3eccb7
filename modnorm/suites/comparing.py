"""Tables that set two places against each other, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modnorm.analysis.tail import gains
from modnorm.errors import InvalidInputError
from modnorm.suites.cells import Cell, matches
from modnorm.suites.declaration import Suite
from modnorm.suites.figures import BuiltTable, Figure, FigureRow, PublishedTable
from modnorm.suites.outcomes import Outcome, Outcomes
from modnorm.suites.points import Point, by_seed, points_of
from modnorm.suites.tables import (
    Comparison,
    DifferenceTable,
    Pick,
    SpeedupTable,
    SupportTable,
    TailTable,
)

Pair = tuple[Outcome, Outcome]
_ComparingTables = DifferenceTable | SpeedupTable | SupportTable | TailTable


@dataclass(frozen=True)
class Filling:
    """What a table is filled from."""

    suite: Suite
    cells: Sequence[Cell]
    outcomes: Outcomes
    field: str
    """Place of the table in the suite file, for errors."""

    def published(self, spec: _ComparingTables) -> PublishedTable:
        """Return the paper's numbers of a table."""
        return PublishedTable(spec.paper.values if spec.paper else None, f"{self.field}.paper")

    def chosen(self, pick: Pick) -> dict[int, Cell]:
        """Return the cells that a pick points to, by seed.

        Raises:
            InvalidInputError: it points to none, or to two of a seed.
        """
        where = {axis: str(v) for axis, v in pick.items() if axis not in {"N", "K"}}
        found: dict[int, Cell] = {}
        for cell in self.cells:
            if matches(cell.labels, where):
                if cell.seed in found:
                    raise InvalidInputError(
                        f"{where} points to several cells of a seed",
                        field=self.field,
                        remedy="name an option of every axis",
                    )
                found[cell.seed] = cell
        if not found:
            raise InvalidInputError(f"{where} points to no cell", field=self.field)
        return found

    def pairs(self, pair: Comparison) -> tuple[dict[int, Pair], int]:
        """Return the finished pairs of cells by seed, and how many there should be."""
        one, other = self.chosen(pair.of), self.chosen(pair.against)
        seeds = sorted(one.keys() & other.keys())
        found = {}
        for seed in seeds:
            first, second = self.outcomes.of(one[seed]), self.outcomes.of(other[seed])
            if first is not None and second is not None:
                found[seed] = (first, second)
        return found, len(seeds)


def difference_table(spec: DifferenceTable, filling: Filling) -> BuiltTable:
    """Fill a table of accuracy differences, paired by seed."""
    published = filling.published(spec)

    def figure(size: int, pair: Comparison) -> Figure:
        one, seeds = _metrics(filling, {**pair.of, "K": size})
        other, _ = _metrics(filling, {**pair.against, "K": size})
        values = {seed: one[seed] - other[seed] for seed in one if seed in other}
        return Figure(values, seeds, published.find((str(size), pair.label)))

    rows = [
        FigureRow((str(size),), tuple(figure(size, pair) for pair in spec.compare))
        for size in spec.ensemble_sizes
    ]
    return built(spec, ("K",), tuple(pair.label for pair in spec.compare), rows)


def speedup_table(spec: SpeedupTable, filling: Filling) -> BuiltTable:
    """Fill a table of time ratios: mean of the ratios, not ratio of the means (paper)."""
    published = filling.published(spec)
    columns = {"Search": "search", "End-to-end": "end_to_end"}

    def figure(pair: Comparison, column: str) -> Figure:
        found, seeds = filling.pairs(pair)
        values = {
            seed: seconds(against, columns[column]) / seconds(of, columns[column])
            for seed, (of, against) in found.items()
        }
        return Figure(values, seeds, published.find((pair.label, column)))

    rows = [
        FigureRow((pair.label,), tuple(figure(pair, column) for column in columns))
        for pair in spec.compare
    ]
    return built(spec, ("",), tuple(columns), rows)


def require_full(outcome: Outcome, field: str) -> None:
    """Make sure that every candidate answered every selection row.

    Raises:
        InvalidInputError: candidates that could not become experts were stopped.
    """
    if outcome.has_stopped_candidates:
        raise InvalidInputError(
            f"{outcome.cell.id} did not score all of its candidates to the end",
            field=field,
            remedy="set population.statistics to full for this suite",
        )


def seconds(outcome: Outcome, scope: str) -> float:
    """Return a time of the paper's scope: `search` or `end_to_end`.

    Raises:
        InvalidInputError: the run's times do not say.
    """
    found = outcome.timings.get("scope")
    value = found.get(scope) if isinstance(found, Mapping) else None
    if not isinstance(value, int | float) or value <= 0:
        raise InvalidInputError(
            f"{outcome.directory / 'timings.json'} has no time of {scope}", field="directory"
        )
    return float(value)


def _metrics(filling: Filling, pick: Pick) -> tuple[dict[int, float], int]:
    points = ensembles(filling, pick)
    return by_seed(points, filling.outcomes, field=filling.field)


def ensembles(filling: Filling, pick: Pick) -> list[Point]:
    """Return the ensembles that a pick points to.

    Raises:
        InvalidInputError: it points to none.
    """
    points = [point for point in points_of(filling.cells) if point.fits(pick)]
    if not points:
        raise InvalidInputError(f"{dict(pick)} points to no ensemble", field=filling.field)
    return points


def reward_gains(outcome: Outcome, population: int | None = None) -> tuple[float, ...]:
    """Return the selection-reward gains of a population, in percentage points.

    Args:
        outcome: A finished cell.
        population: N, whose first candidates count; all of them when None. Failed ones have none.

    Raises:
        InvalidInputError: the base was not measured.
    """
    base = outcome.document["base"]["selection_reward"]
    if base is None:
        raise InvalidInputError(f"{outcome.cell.id} has not measured the base", field="directory")
    rewards = [
        candidate.reward
        for candidate in outcome.candidates
        if population is None or candidate.index < population
    ]
    return gains(rewards, base)


def built(
    spec: _ComparingTables,
    headings: tuple[str, ...],
    columns: tuple[str, ...],
    rows: Sequence[FigureRow],
) -> BuiltTable:
    """Return a table as declared, filled."""
    return BuiltTable(
        title=spec.title,
        source=spec.source,
        headings=headings,
        columns=columns,
        rows=tuple(rows),
        digits=spec.digits,
        paper_source=spec.paper.source if spec.paper else None,
    )
