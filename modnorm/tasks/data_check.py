"""Checks the data of a task in a folder against its manifest and the catalogue."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.tasks.catalogue import Dataset, find_task
from modnorm.tasks.manifest import (
    FOLDER,
    MANIFEST,
    DataManifest,
    Origin,
    SplitRecord,
    first_change,
    read_data_manifest,
)
from modnorm.tasks.row_files import read_file
from modnorm.tasks.split_verification import verify
from modnorm.tasks.splits import remedy, split_from_folder


@dataclass(frozen=True, slots=True)
class Checked:
    """Data of a task that passed the check."""

    manifest: DataManifest
    fetched: bool
    """Whether `modnorm data fetch` wrote them; otherwise they are a data set's own files."""


def check(task: str, folder: Path, *, field: str = "folder") -> Checked:
    """Check the splits of a task in a folder.

    Fetched files must match their manifest byte for byte, and their rows the catalogue. Without a
    manifest, a data set's own files must have the catalogue's rows.

    Raises:
        InvalidInputError: there is no such task, or a file is missing, malformed or changed. The
            message names the file, and the row if it is known.
        NotFoundError: the folder has no data of the task.
    """
    data = find_task(task)
    place = folder / task
    manifest = read_data_manifest(place, field=field)
    if manifest is None:
        return Checked(_own_files(data, folder, field), fetched=False)
    for difference in _differences(data, manifest):
        raise InvalidInputError(
            f"{place / MANIFEST} differs from the catalogue: {difference}",
            field=field,
            remedy=f"modnorm data fetch {task} --to {folder}",
        )
    for record in manifest.splits:
        _check_file(data, record, folder, field)
    return Checked(manifest, fetched=True)


def _own_files(data: Dataset, folder: Path, field: str) -> DataManifest:
    loaded = {name: split_from_folder(data, name, folder, field=field) for name in data.splits}
    missing = [f"{data.task}/{name}" for name, split in loaded.items() if split is None]
    if missing:
        kind = NotFoundError if len(missing) == len(loaded) else InvalidInputError
        raise kind(
            f"{folder / data.task} has no file of {', '.join(missing)}",
            field=field,
            remedy=remedy(data),
        )
    splits = tuple(
        SplitRecord(
            name=f"{data.task}/{name}",
            file=split.path.name,
            rows=len(split.rows),
            digest=split.digest,
            sha256=_sha256(split.path),
            taken_from=split.taken_from,
        )
        for name, split in loaded.items()
        if split is not None and split.path is not None
    )
    origin = Origin(source=FOLDER)
    return DataManifest(task=data.task, origin=origin, licence=data.licence, splits=splits)


def _differences(data: Dataset, manifest: DataManifest) -> Iterator[str]:
    if manifest.task != data.task:
        yield f"its task is {manifest.task}"
    names = [record.name for record in manifest.splits]
    if sorted(names) != sorted(f"{data.task}/{name}" for name in data.splits):
        yield f"it has the splits {', '.join(names)}"
        return
    for record in manifest.splits:
        split = data.splits[record.name.partition("/")[2]]
        for name, actual, expected in (
            ("rows", record.rows, split.rows),
            ("digest", record.digest, split.digest),
            ("SHA-256", record.sha256, split.file_sha256),
        ):
            if expected not in {None, actual}:
                yield f"{name} of {record.name}: {actual} instead of {expected}"


def _check_file(data: Dataset, record: SplitRecord, folder: Path, field: str) -> None:
    path = folder / data.task / record.file
    fetch = f"modnorm data fetch {data.task} --to {folder}"
    if not path.is_file():
        raise InvalidInputError(f"{path} is missing", field=field, remedy=fetch)
    name = record.name.partition("/")[2]
    rows = list(read_file(path, str(path), field=field))
    verify(data, name, rows, source=str(path), record=record, field=field)
    if _sha256(path) != record.sha256:
        change = first_change(record, rows) or "no row, only its text format"
        raise InvalidInputError(
            f"{path} was changed since it was fetched: {change}", field=field, remedy=fetch
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
