"""What is known of the cells of a suite, in a file that outlives the command that runs them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from modnorm.errors import ConflictError
from modnorm.files import encode_json, write_file
from modnorm.suites.declaration import Fragment

FILE = "suite.json"
SCHEMA = "modnorm-suite-1"


class CellState(StrEnum):
    """Where a cell is."""

    WAITING = "waiting"
    SUBMITTED = "submitted"
    """A lab has it; it may be there still when the command that submitted it has ended."""
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What is known of one cell."""

    state: CellState = CellState.WAITING
    experiment: str = ""
    """Id in the lab."""
    error: str = ""
    done: int = 0
    """Jobs done of the present phase."""
    total: int = 0
    phase: str = ""
    """State of the experiment, as the lab last told."""
    waits_for: str = ""
    """Why the experiment waits for a service, if it does."""
    updated: float = 0.0
    """Seconds since the epoch."""


class Journal:
    """The records of a suite's cells, written whole at every change.

    One process at a time writes it: the one that holds the directory.

    Args:
        directory: The directory of the suite.
        suite: Name of the suite.
    """

    def __init__(self, directory: Path, suite: str) -> None:
        self._file = directory / FILE
        self._suite = suite
        self._content = self._read()

    @property
    def settings(self) -> tuple[Fragment, ...]:
        """What was laid over every cell."""
        found = self._content.get("settings")
        return tuple(found) if isinstance(found, list) else ()

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self._file.exists()

    def check(self, settings: Sequence[Fragment]) -> None:
        """Make sure that this is the directory of the same suite with the same settings.

        Raises:
            ConflictError: it is not.
        """
        if self.exists and list(self.settings) != list(settings):
            raise ConflictError(
                f"{self._file.parent} was begun with other settings: {list(self.settings)}",
                field="set",
                remedy="name another directory with --out, or the same settings",
            )

    def begin(self, settings: Sequence[Fragment]) -> None:
        """Write down which suite works here."""
        self._content = {**self._content, "settings": list(settings)}
        self._write()

    def record(self, cell: str) -> CellRecord:
        """Return what is known of a cell."""
        found = self._cells.get(cell)
        if not isinstance(found, dict):
            return CellRecord()
        return CellRecord(**{**found, "state": CellState(found["state"])})

    def note(self, cell: str, **changes: object) -> CellRecord:
        """Change the record of a cell; nothing is written where nothing changes."""
        before = self.record(cell)
        after = replace(before, **changes)  # type: ignore[arg-type]  # fields of the record, by name
        if after == before:
            return before
        after = replace(after, updated=time.time())
        self._content = {**self._content, "cells": {**self._cells, cell: asdict(after)}}
        self._write()
        return after

    @property
    def _cells(self) -> Mapping[str, object]:
        found = self._content.get("cells")
        return found if isinstance(found, dict) else {}

    def _write(self) -> None:
        write_file(self._file, encode_json(self._content))

    def _read(self) -> Mapping[str, object]:
        empty = {"schema": SCHEMA, "suite": self._suite, "settings": [], "cells": {}}
        if not self._file.exists():
            return empty
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConflictError(f"cannot read {self._file}: {error}", field="out") from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ConflictError(f"{self._file} is not of schema {SCHEMA}", field="out")
        if found.get("suite") != self._suite:
            raise ConflictError(
                f"{self._file.parent} is of the suite {found.get('suite')!r}",
                field="out",
                remedy="name another directory with --out",
            )
        return found
