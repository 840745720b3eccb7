"""The manifest of fetched data: origin, number of rows and hashes.

It is `manifest.json` beside the files that it describes. It contains no machine's paths, so a
folder may be moved or copied.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.tasks.row_files import Raw, RawRow

MANIFEST = "manifest.json"
FOLDER = "a folder"
"""Source of rows that were read from files instead of their public origin."""
_MARK_DIGITS = 8


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Origin(_Record):
    """The origin of a task's rows."""

    source: str
    """Hugging Face dataset, address of a file, or `FOLDER`."""
    config: str | None = None
    """Configuration of the dataset."""
    revision: str | None = None
    """Commit of the dataset; None if unknown."""


class SplitRecord(_Record):
    """One split in a folder."""

    name: str
    """`gsm8k/selection`."""
    file: str = Field(pattern=r"^[^/\\]+$")
    rows: int
    digest: str
    """Digest of the rows in the task's schema."""
    sha256: str
    """SHA-256 of the file."""
    taken_from: str
    """The rows' positions in their split or file: `train, rows 1 to 200`."""
    marks: tuple[str, ...] | None = Field(default=None, repr=False)
    """The first digits of each row's SHA-256, which identify a changed row."""


class DataManifest(_Record):
    """The content of a manifest file."""

    task: str
    origin: Origin
    licence: str
    splits: tuple[SplitRecord, ...]

    def record(self, name: str) -> SplitRecord | None:
        """Return the record of a split such as `selection`; None without one."""
        full = f"{self.task}/{name}"
        return next((record for record in self.splits if record.name == full), None)

    def encode(self) -> bytes:
        """Return the file's content, one mark a line."""
        return f"{json.dumps(self.model_dump(mode='json'), indent=2)}\n".encode()


def read_data_manifest(place: Path, *, field: str) -> DataManifest | None:
    """Return the manifest in a task's folder; None without one.

    Raises:
        InvalidInputError: the manifest cannot be read.
    """
    path = place / MANIFEST
    try:
        return DataManifest.model_validate_json(path.read_bytes())
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
    """Return the marks of rows, computed from all their columns."""
    texts = (json.dumps(row, sort_keys=True) for row in rows)
    return tuple(hashlib.sha256(text.encode()).hexdigest()[:_MARK_DIGITS] for text in texts)


def first_change(record: SplitRecord, rows: Sequence[RawRow]) -> str | None:
    """Return the place of the first row that differs from the record; None if all are equal.

    If rows are missing at the end, return "the end".
    """
    recorded = record.marks or ()
    actual = marks(row for _, row in rows)
    for index, (old, new) in enumerate(zip_longest(recorded, actual)):
        if old != new:
            return rows[index][0] if index < len(rows) else "the end"
    return None
