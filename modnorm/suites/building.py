"""The tables of a suite, filled from what is finished."""

from dataclasses import replace

from modnorm.suites.comparing import Filling, difference_table, speedup_table
from modnorm.suites.developing import development_table
from modnorm.suites.explaining import support_table, tail_table
from modnorm.suites.figures import BuiltTable
from modnorm.suites.loading import LoadedSuite
from modnorm.suites.metric import metric_table
from modnorm.suites.outcomes import Outcomes
from modnorm.suites.populations import density_table, survival_table, wall_clock_table
from modnorm.suites.tables import (
    DensityTable,
    DevelopmentTable,
    DifferenceTable,
    MetricTable,
    SpeedupTable,
    SupportTable,
    SurvivalTable,
    TableSpec,
    TailTable,
)


def build_tables(loaded: LoadedSuite, outcomes: Outcomes) -> tuple[BuiltTable, ...]:
    """Fill the tables of a suite.

    Raises:
        InvalidInputError: a table does not tell cells apart, points to none, or needs what a
            run did not measure; names the table.
    """
    notes = _notes(loaded, outcomes)
    return tuple(
        _with_notes(_build(spec, loaded, outcomes, f"tables.{index}"), notes)
        for index, spec in enumerate(loaded.suite.tables)
    )


def _build(spec: TableSpec, loaded: LoadedSuite, outcomes: Outcomes, field: str) -> BuiltTable:  # noqa: PLR0911 - one a kind
    filling = Filling(loaded.suite, loaded.cells, outcomes, field)
    match spec:
        case MetricTable():
            return metric_table(spec, loaded.suite, loaded.cells, outcomes, field)
        case DifferenceTable():
            return difference_table(spec, filling)
        case SpeedupTable():
            return speedup_table(spec, filling)
        case SupportTable():
            return support_table(spec, filling)
        case TailTable():
            return tail_table(spec, filling)
        case DensityTable():
            return density_table(spec, filling)
        case DevelopmentTable():
            return development_table(spec, filling)
        case SurvivalTable():
            return survival_table(spec, filling)
        case _:
            return wall_clock_table(spec, filling)


def _with_notes(table: BuiltTable, notes: tuple[str, ...]) -> BuiltTable:
    return replace(table, notes=(*table.notes, *notes))


def _notes(loaded: LoadedSuite, outcomes: Outcomes) -> tuple[str, ...]:
    """Say what keeps figures of the suite from being read side by side."""
    notes = [
        f"left out: {cell} holds a run of other settings ({field})"
        for cell, field in outcomes.strangers.items()
    ]
    mixed = [
        cell.id
        for cell in loaded.cells
        if (outcome := outcomes.of(cell)) and outcome.document.get("mixed_environments")
    ]
    if mixed:
        notes.append(f"answered on machines that round differently: {', '.join(mixed)}")
    return tuple(notes)
