"""The journal of a suite: a file with the state of each cell, which later commands read."""

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter, ValidationError

from modnorm.errors import ConflictError
from modnorm.files import encode_json, read_fault, write_file
from modnorm.suites.suite_file import Fragment

FILE = "suite.json"


class CellState(StrEnum):
    WAITING = "waiting"
    SUBMITTED = "submitted"
    """A lab has the cell, and may work on it after the command that submitted it has ended."""
    INTERRUPTED = "interrupted"
    """The command ended after it submitted the cell; in no journal."""
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The journal's entry for one cell."""

    state: CellState = CellState.WAITING
    experiment: str = ""
    """Id in the lab."""
    error: str = ""
    done: int = 0
    """Finished jobs, prompts or updates of the present phase."""
    total: int = 0
    phase: str = ""
    """Last known state of the experiment."""
    waits_for: str = ""
    """Service that the experiment waits for, with the reason; empty if it waits for none."""
    updated: float = 0.0
    """Seconds since the epoch."""


@dataclass(slots=True)
class _Content:
    suite: str
    settings: list[Fragment] = field(default_factory=list)
    cells: dict[str, CellRecord] = field(default_factory=dict)
    schema: Literal["modnorm-suite-1"] = "modnorm-suite-1"


_CONTENT = TypeAdapter(_Content)


class Journal:
    """The records of a suite's cells, written whole at every change.

    Only the process that holds the directory writes it.
    """

    def __init__(self, directory: Path, suite: str) -> None:
        self._file = directory / FILE
        self._content = _Content(suite)
        if not self._file.exists():
            return
        try:
            self._content = _CONTENT.validate_json(self._file.read_bytes())
        except OSError as error:
            raise ConflictError(
                f"cannot read {self._file}: {read_fault(error)}", field="out"
            ) from error
        except ValidationError as error:
            raise ConflictError(f"{self._file} is no journal of a suite", field="out") from error
        if self._content.suite != suite:
            raise ConflictError(
                f"{directory} belongs to the suite {self._content.suite!r}",
                field="out",
                remedy="name another directory with --out",
            )

    @property
    def settings(self) -> tuple[Fragment, ...]:
        """Fragments laid over every cell."""
        return tuple(self._content.settings)

    def begin(self, settings: Sequence[Fragment]) -> None:
        """Record the settings of a run; refuse the directory of a run with other settings."""
        if self._file.exists() and list(self.settings) != list(settings):
            began = " ".join(map(_option, self.settings))
            raise ConflictError(
                f"{self._file.parent} was begun with {began or 'no --set'}",
                field="set",
                remedy="name another directory with --out, or the same settings",
            )
        self._content.settings = list(settings)
        self._write()

    def record(self, cell: str) -> CellRecord:
        """Return the record of a cell, which is waiting unless recorded otherwise."""
        return self._content.cells.get(cell, CellRecord())

    def note(self, cell: str, **changes: object) -> CellRecord:
        """Change fields of a cell's record; write nothing if they are equal."""
        before = self.record(cell)
        after = replace(before, **changes)  # type: ignore[arg-type]  # fields of the record, by name
        if after == before:
            return before
        after = replace(after, updated=time.time())
        self._content.cells[cell] = after
        self._write()
        return after

    def _write(self) -> None:
        write_file(self._file, encode_json(_CONTENT.dump_python(self._content, mode="json")))


def _option(fragment: Fragment) -> str:
    """Return a fragment as the option that a user types: `--set engine.name=vllm`."""
    steps: list[str] = []
    value: object = fragment
    while isinstance(value, Mapping) and len(value) == 1:
        ((step, value),) = value.items()
        steps.append(step)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    text = text.removesuffix("...\n").strip()
    return "--set " + shlex.quote(f"{'.'.join(steps)}={text}")
