"""Fetches the data of a task into a folder, with a manifest."""

import hashlib
import json
import os
from contextlib import ExitStack
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
from modnorm.tasks.splits import (
    FOLDER,
    MANIFEST,
    DataManifest,
    LoadedSplit,
    Origin,
    SplitRecord,
    cut,
    read_data_manifest,
    remedy,
    shuffled,
    span,
    split_from_folder,
    split_from_hub,
    verify,
)


def check(task: str, folder: Path, *, field: str = "folder") -> tuple[DataManifest, bool]:
    """Check that the splits of a task in a folder have the catalogue's rows."""
    data, place = find_task(task), folder / task
    manifest = read_data_manifest(place, field=field)
    loaded = {name: split_from_folder(data, name, folder, field=field) for name in data.splits}
    missing = [f"{data.task}/{name}" for name, split in loaded.items() if split is None]
    if missing:
        absent = manifest is None and len(missing) == len(loaded)
        raise (NotFoundError if absent else InvalidInputError)(
            f"{place} has no file of {', '.join(missing)}", field=field, remedy=remedy(data)
        )
    files = tuple(
        _record(data, name, split, split.path.name, split.path.read_bytes())
        for name, split in loaded.items()
        if split is not None and split.path is not None
    )
    if manifest is None:
        origin = Origin(source=FOLDER)
        found = DataManifest(task=data.task, origin=origin, licence=data.licence, splits=files)
        return found, False
    if manifest.task != task or manifest.splits != files:
        changed = next((now.file for now in files if now not in manifest.splits), MANIFEST)
        raise InvalidInputError(
            f"{place / changed} was changed since it was fetched",
            field=field,
            remedy=f"modnorm data fetch {task} --to {folder}",
        )
    return manifest, True


def _record(
    data: Dataset, name: str, split: LoadedSplit, file: str, content: bytes
) -> SplitRecord:
    return SplitRecord(
        name=f"{data.task}/{name}",
        file=file,
        rows=len(split.rows),
        digest=split.digest,
        sha256=hashlib.sha256(content).hexdigest(),
        taken_from=split.taken_from,
    )


_DOWNLOAD_SECONDS = 60
_DATA, _FROM, _TO = "data", "from", "to"


def fetch(task: str, folder: Path, *, source: Path | None = None) -> tuple[DataManifest, bool]:
    """Write all splits of a task into a folder, with a manifest."""
    data = find_task(task)
    existing = _intact_manifest(task, folder)
    if existing is not None and source is None:
        return existing, False
    splits = _download(data) if source is None else _collect(data, source)
    suffix = ".json" if data.shuffled else ".jsonl"
    contents = {f"{name}{suffix}": _encode(data, name, split) for name, split in splits.items()}
    manifest = DataManifest(
        task=data.task,
        origin=next(iter(splits.values())).origin,
        licence=data.licence,
        splits=tuple(
            _record(data, name, split, file, contents[file])
            for (name, split), file in zip(splits.items(), contents, strict=True)
        ),
    )
    if existing == manifest:
        return manifest, False
    _write(folder / task, {**contents, MANIFEST: manifest.encode()})
    return manifest, True


def _intact_manifest(task: str, folder: Path) -> DataManifest | None:
    try:
        manifest, is_fetched = check(task, folder)
    except ModnormError:
        return None
    return manifest if is_fetched else None


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
