"""The manifest of a fetched task: where its rows come from, how many there are, their hashes.

It is `manifest.json` beside the files that it describes, and names no place on any machine: a
folder may be moved, packed and read elsewhere.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.tasks.row_files import Raw, RawRow

MANIFEST = "manifest.json"
FOLDER = "a folder"
"""Source of rows that were fetched from files, and not from their public home."""
_MARK_DIGITS = 8


def _split(marks: object) -> object:
    """Take marks as JSON has them, and as manifests had them: one text, with spaces between."""
    if isinstance(marks, str):
        return tuple(marks.split())
    return tuple(marks) if isinstance(marks, list) else marks


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Origin(_Record):
    """Where the rows of a task come from."""

    source: str
    """Hugging Face dataset, address of a file, or `FOLDER`."""
    config: str | None = None
    """Configuration of the dataset."""
    revision: str | None = None
    """Commit of the dataset that was read; None where it is not known."""


class SplitRecord(_Record):
    """What a folder holds of one split."""

    name: str
    """`gsm8k/selection`."""
    file: str = Field(pattern=r"^[^/\\]+$")
    rows: int
    digest: str
    """Digest of the rows in the task's schema."""
    sha256: str
    """SHA-256 of the file."""
    taken_from: str
    """Which rows of which split or file they are: `train, rows 1 to 200`."""
    marks: Annotated[tuple[str, ...] | None, BeforeValidator(_split)] = Field(
        default=None, repr=False
    )
    """The first digits of each row's own SHA-256: they tell which row was changed."""


class Manifest(_Record):
    """Content of a manifest."""

    task: str
    origin: Origin
    licence: str
    splits: tuple[SplitRecord, ...]

    def record(self, name: str) -> SplitRecord | None:
        """Return the record of a split, `selection`; None when there is none."""
        full = f"{self.task}/{name}"
        return next((record for record in self.splits if record.name == full), None)

    def encode(self) -> bytes:
        """Return the file's content, one mark a line."""
        return f"{json.dumps(self.model_dump(mode='json'), indent=2)}\n".encode()


def read_manifest(place: Path, *, field: str) -> Manifest | None:
    """Return the manifest in the folder of a task, None when there is none.

    Raises:
        InvalidInputError: it cannot be read.
    """
    path = place / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise InvalidInputError(
            f"{path} is no manifest: {reason}",
            field=field,
            remedy=f"modnorm data fetch {place.name}",
        ) from error


def marks(rows: Iterable[Raw]) -> tuple[str, ...]:
    """Return the marks of rows, all columns of them."""
    texts = (json.dumps(row, sort_keys=True) for row in rows)
    return tuple(hashlib.sha256(text.encode()).hexdigest()[:_MARK_DIGITS] for text in texts)


def first_change(record: SplitRecord, rows: Sequence[RawRow]) -> str | None:
    """Return the place of the first row that is not the one recorded, None when all are.

    Where rows are missing at the end, it is the end.
    """
    recorded = record.marks or ()
    found = marks(row for _, row in rows)
    for index, (then, now) in enumerate(zip_longest(recorded, found)):
        if then != now:
            return rows[index][0] if index < len(rows) else "the end"
    return None
