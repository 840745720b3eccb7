"""Places in tables: the ensembles of cells, by the options of their axes, N and K."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from modnorm.errors import InvalidInputError
from modnorm.suites.cells import Cell, ensembles_of, place_of
from modnorm.suites.declaration import Suite
from modnorm.suites.outcomes import Outcomes
from modnorm.suites.tables import Pick

NUMBERS = ("N", "K")


@dataclass(frozen=True, slots=True)
class Point:
    """One ensemble of one cell."""

    cell: Cell
    population: int
    ensemble_size: int

    def label(self, axis: str) -> str:
        """Return the option on an axis, `N` and `K` among them."""
        if axis in NUMBERS:
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


def labels_of(point: Point, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the options of a point on axes."""
    return tuple(point.label(axis) for axis in axes)


@dataclass(frozen=True)
class Order:
    """The order of options as the suite declares them; N and K by size."""

    suite: Suite

    def distinct(
        self, points: Iterable[Point], axes: Sequence[str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return the combinations of options that points have, each once and in order."""
        found = {labels_of(point, axes) for point in points}
        return tuple(sorted(found, key=lambda labels: self._key(axes, labels)))

    def _key(self, axes: Sequence[str], labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(place_of(self.suite, a, label) for a, label in zip(axes, labels, strict=True))
