"""Fetches the data of a task into a folder, with a manifest."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from modnorm.errors import (
    InvalidInputError,
    ModnormError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from modnorm.files import replaced_file, write_fault
from modnorm.tasks.catalogue import Dataset, find_task
from modnorm.tasks.row_files import read_file
from modnorm.tasks.splits import (
    FOLDER,
    MANIFEST,
    DataManifest,
    LoadedSplit,
    Origin,
    SplitRecord,
    cut,
    first_change,
    marks,
    read_data_manifest,
    remedy,
    shuffled,
    span,
    split_from_folder,
    split_from_hub,
    verify,
)


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


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


_DOWNLOAD_SECONDS = 60
_DATA, _FROM, _TO = "data", "from", "to"


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch."""

    manifest: DataManifest
    written: bool
    """False if the folder already had intact data."""


def fetch(task: str, folder: Path, *, source: Path | None = None) -> Fetched:
    """Write all splits of a task into a folder, with a manifest.

    Intact files are kept; without a `source` nothing is read in this case. Each file is replaced
    atomically, the manifest last.
    """
    data = find_task(task)
    existing = _intact_manifest(task, folder)
    if existing is not None and source is None:
        return Fetched(existing, written=False)
    splits = _download(data) if source is None else _collect(data, source)
    files = {name: _encode(data, name, split) for name, split in splits.items()}
    manifest = _manifest(data, splits, files)
    if existing == manifest:
        return Fetched(manifest, written=False)
    contents = {manifest.splits[n].file: content for n, content in enumerate(files.values())}
    _write(folder / task, {**contents, MANIFEST: manifest.encode()})
    return Fetched(manifest, written=True)


def _intact_manifest(task: str, folder: Path) -> DataManifest | None:
    try:
        checked = check(task, folder)
    except ModnormError:
        return None
    return checked.manifest if checked.fetched else None


def _collect(data: Dataset, source: Path) -> dict[str, LoadedSplit]:
    if not source.is_dir():
        raise InvalidInputError(f"there is no folder {source}", field=_FROM)
    if read_data_manifest(source / data.task, field=_FROM) is not None:
        check(data.task, source, field=_FROM)
    splits = {}
    for name in data.splits:
        split = split_from_folder(data, name, source, field=_FROM)
        if split is None:
            raise InvalidInputError(
                f"{source} has no file of {data.task}/{name}",
                field=_FROM,
                remedy=f"put the data set's files into {source / data.task}",
            )
        splits[name] = split
    return splits


def _download(data: Dataset) -> dict[str, LoadedSplit]:
    if data.url is not None:
        return _cut_file(data, data.url)
    if data.hub is None:
        raise PreconditionError(
            f"the rows of {data.task} are not public", field=_DATA, remedy=remedy(data)
        )
    return {name: split_from_hub(data, name, field=_DATA) for name in data.splits}


def _cut_file(data: Dataset, url: str) -> dict[str, LoadedSplit]:
    rows = json.loads(_get(url, data.sha256))
    order = shuffled((f"row {number}", row) for number, row in enumerate(rows, 1))
    splits = {}
    for name, split in data.splits.items():
        part = split.parts[0]
        taken = cut(order, part, split.rows)
        digest = verify(data, name, taken, source=url, field=_DATA)
        taken_from = span(f"{data.task}.json, shuffled", part, split.rows)
        splits[name] = LoadedSplit(taken, digest, Origin(source=url), taken_from)
    return splits


def _get(url: str, sha256: str | None) -> bytes:
    try:
        response = httpx.get(url, timeout=_DOWNLOAD_SECONDS, follow_redirects=True)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise UnavailableError(
            f"cannot download {url}: {error}",
            field=_DATA,
            remedy="try again, or name a folder with the file",
        ) from error
    if hashlib.sha256(response.content).hexdigest() != sha256:
        raise InvalidInputError(f"the file at {url} has changed", field=_DATA)
    return response.content


def _encode(data: Dataset, name: str, split: LoadedSplit) -> bytes:
    rows = [row for _, row in split.rows]
    try:
        if data.shuffled:
            content = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False).encode()
        else:
            lines = (
                json.dumps(row, ensure_ascii=False, sort_keys=True, allow_nan=False)
                for row in rows
            )
            content = "".join(f"{line}\n" for line in lines).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"a row of {data.task}/{name} cannot be written as JSON: {error}", field=_DATA
        ) from error
    sha256, expected = hashlib.sha256(content).hexdigest(), data.splits[name].file_sha256
    if expected not in {None, sha256}:
        raise InvalidInputError(
            f"the rows of {data.task}/{name} are not those of the paper: the file has the SHA-256 "
            f"{sha256} instead of {expected}",
            field=_DATA,
            remedy="the origin may have changed; fetch from an older copy with --from FOLDER",
        )
    return content


def _manifest(
    data: Dataset, splits: Mapping[str, LoadedSplit], files: Mapping[str, bytes]
) -> DataManifest:
    suffix = ".json" if data.shuffled else ".jsonl"
    records = tuple(
        SplitRecord(
            name=f"{data.task}/{name}",
            file=f"{name}{suffix}",
            rows=len(split.rows),
            digest=split.digest,
            sha256=hashlib.sha256(files[name]).hexdigest(),
            taken_from=split.taken_from,
            marks=marks(row for _, row in split.rows),
        )
        for name, split in splits.items()
    )
    origin = next(iter(splits.values())).origin
    return DataManifest(task=data.task, origin=origin, licence=data.licence, splits=records)


def _write(place: Path, files: dict[str, bytes]) -> None:
    """Write files; once all are written, they replace older ones in their order."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as drafts:
            for name, content in reversed(files.items()):  # the last draft is the first to end
                draft = place / f".{name}.{os.getpid()}.part"
                drafts.enter_context(replaced_file(place / name, draft=draft)).write(content)
    except OSError as error:
        raise write_fault(place, error, _TO) from error
