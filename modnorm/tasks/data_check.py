"""Checking the data of a task in a folder, against its manifest and the catalogue."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.tasks.catalogue import Dataset, find_task
from modnorm.tasks.manifest import (
    FOLDER,
    MANIFEST,
    Manifest,
    Origin,
    SplitRecord,
    first_change,
    read_manifest,
)
from modnorm.tasks.row_files import read_file
from modnorm.tasks.split_verification import verify
from modnorm.tasks.splits import remedy, split_from_folder


@dataclass(frozen=True, slots=True)
class Checked:
    """Data of a task that are sound."""

    manifest: Manifest
    fetched: bool
    """Whether `modnorm data fetch` wrote them; else they are a data set's own files."""


def check(task: str, folder: Path, *, field: str = "folder") -> Checked:
    """Check the splits of a task in a folder.

    What was fetched must be what its manifest says, byte for byte, and its rows the catalogue's.
    Where there is no manifest, a data set's own files must give the catalogue's rows.

    Args:
        task: Name of a task of the paper.
        folder: Has the task's data in `TASK`.
        field: Field for errors.

    Raises:
        InvalidInputError: there is no such task; or something is missing, malformed or changed:
            names the file, and the row where that can be told.
        NotFoundError: the folder has nothing of the task.
    """
    data = find_task(task, field="task")
    place = folder / task
    manifest = read_manifest(place, field=field)
    if manifest is None:
        return Checked(_own_files(data, folder, field), fetched=False)
    for fault in _contradictions(data, manifest):
        raise InvalidInputError(
            f"{place / MANIFEST} is not the catalogue's: {fault}",
            field=field,
            remedy=f"modnorm data fetch {task} --to {folder}",
        )
    for record in manifest.splits:
        _check_file(data, record, folder, field)
    return Checked(manifest, fetched=True)


def _own_files(data: Dataset, folder: Path, field: str) -> Manifest:
    found = {name: split_from_folder(data, name, folder, field=field) for name in data.splits}
    absent = [f"{data.task}/{name}" for name, split in found.items() if split is None]
    if absent:
        kind = NotFoundError if len(absent) == len(found) else InvalidInputError
        raise kind(
            f"{folder / data.task} has no file of {', '.join(absent)}",
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
        for name, split in found.items()
        if split is not None and split.path is not None
    )
    origin = Origin(source=FOLDER)
    return Manifest(task=data.task, origin=origin, licence=data.licence, splits=splits)


def _contradictions(data: Dataset, manifest: Manifest) -> Iterator[str]:
    if manifest.task != data.task:
        yield f"it is of {manifest.task}"
    names = [record.name for record in manifest.splits]
    if sorted(names) != sorted(f"{data.task}/{name}" for name in data.splits):
        yield f"it has the splits {', '.join(names)}"
        return
    for record in manifest.splits:
        split = data.splits[record.name.partition("/")[2]]
        for what, there, here in (
            ("rows", record.rows, split.rows),
            ("digest", record.digest, split.digest),
            ("SHA-256", record.sha256, split.file_sha256),
        ):
            if here not in {None, there}:
                yield f"{what} of {record.name}: {there} instead of {here}"


def _check_file(data: Dataset, record: SplitRecord, folder: Path, field: str) -> None:
    path = folder / data.task / record.file
    again = f"modnorm data fetch {data.task} --to {folder}"
    if not path.is_file():
        raise InvalidInputError(f"{path} is missing", field=field, remedy=again)
    name = record.name.partition("/")[2]
    rows = list(read_file(path, str(path), field=field))
    verify(data, name, rows, source=str(path), record=record, field=field)
    if _sha256(path) != record.sha256:
        where = first_change(record, rows) or "no row, only how they are written"
        raise InvalidInputError(
            f"{path} was changed since it was fetched: {where}", field=field, remedy=again
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
