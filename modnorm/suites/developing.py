"""Tables of development accuracy: which setting of an iterative method is chosen by it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from modnorm.errors import InvalidInputError
from modnorm.suites.comparing import Filling
from modnorm.suites.figures import BuiltTable, Figure, FigureRow
from modnorm.suites.outcomes import Outcome
from modnorm.suites.populations import filled
from modnorm.suites.tables import DevelopmentTable

_COLUMNS = ("First", "Best", "Last")
_SAME = 1e-9
"""Percentage points by which equal means may differ in floating point."""


def development_table(spec: DevelopmentTable, filling: Filling) -> BuiltTable:
    """Fill a table of development accuracies, and say under it what they choose.

    Raises:
        InvalidInputError: a cell trains no model, or two of a seed are in one row.
    """
    for cell in filling.cells:
        if cell.spec.iterative is None:
            raise InvalidInputError(
                f"{cell.id} trains no model: it has no states",
                field=filling.field,
                remedy="make a metric table of its ensembles",
            )
    table = filled(spec, filling, _COLUMNS, _accuracies)
    groups: dict[str, list[FigureRow]] = {}
    for row in table.rows:
        groups.setdefault(row.labels[0], []).append(row)
    notes = tuple(note for name, rows in groups.items() for note in _choice(spec, name, rows))
    return replace(table, notes=notes)


def _accuracies(outcome: Outcome) -> Sequence[float]:
    """Return the accuracy of the first, the best and the last state, in percent.

    The first one is the unperturbed model, which every run measures.
    """
    entry, first = outcome.document["iterative"], outcome.document["base"]["heldout_metric"]
    if entry is None or first is None:
        raise InvalidInputError(
            f"{outcome.cell.id} tells nothing of its states", field="directory"
        )
    found = {0: 100 * first} | {
        cast("int", state["updates"]): 100 * accuracy
        for state in entry["states"]
        if isinstance(accuracy := state["heldout_metric"], float)
    }
    return [found[0], max(found.values()), found[max(found)]]


def _choice(spec: DevelopmentTable, name: str, rows: Sequence[FigureRow]) -> Iterator[str]:
    """Say which setting of a method is chosen, once all its trials are in."""
    if not all(figure.is_complete for row in rows for figure in row.figures):
        return
    stable = [row for row in rows if _is_stable(spec, row)]
    unstable = [row.labels[1] for row in rows if row not in stable]
    text = f"{name}: " + (_highest(spec, stable) if stable else "no stable trial")
    if unstable:
        text += f"; not stable: {', '.join(unstable)}"
    if name in spec.adopted:
        text += f"; the paper adopted {spec.adopted[name]}"
    yield text


def _highest(spec: DevelopmentTable, rows: Sequence[FigureRow]) -> str:
    top = max(_mean(row, spec.by) for row in rows)
    best = [row.labels[1] for row in rows if _mean(row, spec.by) >= top - _SAME]
    tied = f", the first of {len(best)} that are tied" if len(best) > 1 else ""
    return f"{best[0]} is chosen, by the {spec.by} state{tied}"


def _is_stable(spec: DevelopmentTable, row: FigureRow) -> bool:
    if spec.stable_within is None:
        return True
    return _mean(row, "last") >= _mean(row, "first") - spec.stable_within - _SAME


def _mean(row: FigureRow, state: str) -> float:
    figure: Figure = row.figures[_COLUMNS.index(state.capitalize())]
    return cast("float", figure.mean)
