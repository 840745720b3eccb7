"""Cells as labs take them: with the text of task files and the numbers of radius artifacts."""

from dataclasses import replace
from pathlib import Path

from modnorm.client.radius import carry_radius
from modnorm.errors import InvalidInputError
from modnorm.suites import Cell, LoadedSuite
from modnorm.tasks.declared import carry_declaration


def settle(loaded: LoadedSuite, cache: Path) -> LoadedSuite:
    """Read the files that cells name.

    Args:
        loaded: The suite.
        cache: Cache directory of the client, where digests of artifacts are looked up.

    Raises:
        InvalidInputError: one is missing or does not fit; names the cell and the field.
    """
    return replace(loaded, cells=tuple(_settled(cell, cache) for cell in loaded.cells))


def _settled(cell: Cell, cache: Path) -> Cell:
    try:
        return replace(cell, spec=carry_radius(carry_declaration(cell.spec), cache))
    except InvalidInputError as error:
        where = " / ".join(cell.labels.values())
        raise InvalidInputError(
            f"{error.field}: {error.message}", field=f"cell {where}", remedy=error.remedy
        ) from error
