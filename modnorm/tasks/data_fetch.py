"""Fetches the data of a task into a folder."""

import hashlib
import json
from collections.abc import Mapping
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
from modnorm.files import DRAFTS, own_draft, remove_old_drafts, replaced_file, write_fault
from modnorm.tasks.catalogue import Dataset, find_task
from modnorm.tasks.splits import (
    LoadedSplit,
    cut,
    remedy,
    shuffled,
    span,
    split_from_folder,
    split_from_hub,
    verify,
)

Splits = Mapping[str, LoadedSplit]
"""The splits of a task by name, such as `selection`."""


def check(task: str, folder: Path, *, field: str = "folder") -> Splits:
    """Return the splits of a task in a folder, whose rows are the catalogue's."""
    data = find_task(task)
    loaded = {name: split_from_folder(data, name, folder, field=field) for name in data.splits}
    found = {name: split for name, split in loaded.items() if split is not None}
    if missing := [f"{task}/{name}" for name in loaded if name not in found]:
        raise (InvalidInputError if found else NotFoundError)(
            f"{folder / task} has no file of {', '.join(missing)}",
            field=field,
            remedy=remedy(data),
        )
    return found


_DOWNLOAD_SECONDS = 60
_DATA, _FROM, _TO = "data", "from", "to"


def fetch(task: str, folder: Path, *, source: Path | None = None) -> tuple[Splits, bool]:
    """Write all splits of a task into a folder; return them, and whether files were written."""
    data = find_task(task)
    remove_old_drafts((folder / task).rglob(DRAFTS))
    suffix = ".json" if data.shuffled else ".jsonl"
    paths = {name: folder / task / f"{name}{suffix}" for name in data.splits}
    intact = _intact_splits(task, folder)
    is_fetched = {name: split.path for name, split in intact.items()} == paths
    if is_fetched and source is None:
        return intact, False
    splits = _download(data) if source is None else _collect(data, source)
    contents = {paths[name]: _encode(data, name, split) for name, split in splits.items()}
    if is_fetched and all(path.read_bytes() == text for path, text in contents.items()):
        return intact, False
    _write(folder / task, contents)
    return check(task, folder), True


def _intact_splits(task: str, folder: Path) -> Splits:
    try:
        return check(task, folder)
    except ModnormError:
        return {}


def _collect(data: Dataset, source: Path) -> Splits:
    if not source.is_dir():
        raise InvalidInputError(f"there is no folder {source}", field=_FROM)
    try:
        return check(data.task, source, field=_FROM)
    except NotFoundError as error:
        raise InvalidInputError(
            error.message,
            field=_FROM,
            remedy=f"put the data set's files into {source / data.task}",
        ) from error


def _download(data: Dataset) -> Splits:
    if data.url is not None:
        return _cut_file(data, data.url)
    if data.hub is None:
        raise PreconditionError(
            f"the rows of {data.task} are not public", field=_DATA, remedy=remedy(data)
        )
    return {name: split_from_hub(data, name, field=_DATA) for name in data.splits}


def _cut_file(data: Dataset, url: str) -> Splits:
    rows = json.loads(_get(url, data.sha256))
    order = shuffled((f"row {number}", row) for number, row in enumerate(rows, 1))
    splits = {}
    for name, split in data.splits.items():
        part = split.parts[0]
        taken = cut(order, part, split.rows)
        digest = verify(data, name, taken, source=url, field=_DATA)
        taken_from = span(f"{data.task}.json, shuffled", part, split.rows)
        splits[name] = LoadedSplit(taken, digest, taken_from)
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


def _write(place: Path, files: Mapping[Path, bytes]) -> None:
    """Write files; once all are written, they replace older ones."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as drafts:
            for path, content in files.items():
                draft = replaced_file(path, draft=own_draft(path))
                drafts.enter_context(draft).write(content)
    except OSError as error:
        raise write_fault(place, error, _TO) from error
