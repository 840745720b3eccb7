"""Cells as labs take them: with the text of task files and the numbers of radius artifacts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from modnorm.client.radius import carry_radius
from modnorm.errors import InvalidInputError
from modnorm.suites import Cell, LoadedSuite
from modnorm.tasks.declared_task import carry_declaration


def settle(
    loaded: LoadedSuite, cache: Path, *, folders: Sequence[Path] | None = None
) -> LoadedSuite:
    """Read the files that cells name.

    Args:
        loaded: The suite.
        cache: Cache directory of the client, where digests of artifacts are looked up.
        folders: Where named splits are looked for; the default folder when None.

    Raises:
        InvalidInputError: one is missing or does not fit; names the cell and the field.
    """
    cells = tuple(_settled(cell, cache, folders) for cell in loaded.cells)
    return replace(loaded, cells=cells)


def _settled(cell: Cell, cache: Path, folders: Sequence[Path] | None) -> Cell:
    try:
        spec = carry_radius(carry_declaration(cell.spec), cache, folders=folders)
        return replace(cell, spec=spec)
    except InvalidInputError as error:
        where = " / ".join(cell.labels.values())
        raise InvalidInputError(
            f"{error.field}: {error.message}", field=f"cell {where}", remedy=error.remedy
        ) from error
