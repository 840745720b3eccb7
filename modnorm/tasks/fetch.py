"""Fetching named splits into a folder, with a manifest, and checking such a folder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec
from modnorm.tasks.catalogue import DATASETS, Dataset, Split
from modnorm.tasks.files import Raw
from modnorm.tasks.protocol import Row
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.splits import (
    digest_of,
    shuffled,
    split_from_folder,
    split_from_hub,
)

MANIFEST = "manifest.json"
_DOWNLOAD_SECONDS = 60
_FIELD = "data"


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """What a folder holds of one split."""

    name: str
    """`gsm8k/selection`."""
    file: str
    rows: int
    digest: str
    """Digest of the rows in the task's schema."""
    sha256: str
    """SHA-256 of the file."""


@dataclass(frozen=True, slots=True)
class RowsRecord:
    """Which rows a run used: stored with its results."""

    source: str
    config: str | None
    split: str | None
    revision: str | None
    offset: int
    rows: int
    digest: str


def describe_rows(spec: DataSpec, rows: Sequence[Row]) -> RowsRecord:
    """Return the record of the rows that a spec gave."""
    return RowsRecord(
        source=spec.source,
        config=spec.config,
        split=spec.split,
        revision=spec.revision,
        offset=spec.offset,
        rows=len(rows),
        digest=rows_digest(rows),
    )


def fetch(task: str, folder: Path, *, source: Path | None = None) -> tuple[SplitRecord, ...]:
    """Write all splits of a task into a folder, and its manifest.

    Args:
        task: Name of a task of the paper.
        folder: Gets `TASK/SPLIT.jsonl` and `TASK/manifest.json`; Countdown's files are the
            paper's own, byte for byte.
        source: A folder of the data set's own files; its public home when None.

    Raises:
        InvalidInputError: there is no such task, or the rows are not those of the catalogue.
        PreconditionError: the data are not public and no source is given, or `datasets` is
            missing.
        UnavailableError: the public home cannot be reached.
    """
    data = _dataset(task)
    splits = _download(data) if source is None else _collect(data, source)
    place = folder / task
    place.mkdir(parents=True, exist_ok=True)
    records = tuple(_write(data, name, rows, place) for name, rows in splits.items())
    home = {"source": data.hub or data.url, "config": data.config, "revision": data.revision}
    content = {
        "task": task,
        **({"source": "a folder"} if source is not None else home),
        "licence": data.licence,
        "splits": [asdict(record) for record in records],
    }
    (place / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return records


def check(task: str, folder: Path) -> tuple[SplitRecord, ...]:
    """Read the splits of a task from a folder that was fetched.

    Raises:
        InvalidInputError: a file is missing, or was changed since it was fetched.
    """
    data = _dataset(task)
    place = folder / task
    manifest = place / MANIFEST
    try:
        listed = json.loads(manifest.read_text(encoding="utf-8"))["splits"]
        records = tuple(SplitRecord(**record) for record in listed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{manifest} is no manifest: {error}",
            field=_FIELD,
            remedy=f"modnorm data fetch {task}",
        ) from error
    for record in records:
        _compare(data, record, folder)
    return records


def encode_split(data: Dataset, rows: Sequence[Raw]) -> tuple[str, bytes]:
    """Return the suffix and the content of a split's file."""
    if data.shuffled:
        return ".json", json.dumps(list(rows), indent=2, ensure_ascii=False).encode()
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    return ".jsonl", "".join(f"{line}\n" for line in lines).encode()


def _dataset(task: str) -> Dataset:
    if task not in DATASETS:
        raise InvalidInputError(
            f"there are no data of a task {task!r}",
            field=_FIELD,
            remedy=f"one of {', '.join(DATASETS)}",
        )
    return DATASETS[task]


def _collect(data: Dataset, source: Path) -> Mapping[str, Sequence[Raw]]:
    splits = {}
    for name in data.splits:
        rows = split_from_folder(data, name, source, field=_FIELD)
        if rows is None:
            raise InvalidInputError(
                f"{source} has no rows of {data.task}/{name}",
                field=_FIELD,
                remedy=f"put the data set's files into {source / data.task}",
            )
        splits[name] = rows
    return splits


def _download(data: Dataset) -> Mapping[str, Sequence[Raw]]:
    if data.url is not None:
        return _cut_file(data, json.loads(_get(data)))
    if data.hub is None:
        raise PreconditionError(
            f"the rows of {data.task} are not public",
            field=_FIELD,
            remedy=f"get them ({data.licence}) and name the folder they are in",
        )
    return {name: split_from_hub(data, split, field=_FIELD) for name, split in data.splits.items()}


def _get(data: Dataset) -> bytes:
    try:
        response = httpx.get(data.url or "", timeout=_DOWNLOAD_SECONDS, follow_redirects=True)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise UnavailableError(
            f"cannot download {data.url}: {error}",
            field=_FIELD,
            remedy="try again, or name a folder with the file",
        ) from error
    if hashlib.sha256(response.content).hexdigest() != data.sha256:
        raise InvalidInputError(f"{data.url} holds another file than expected", field=_FIELD)
    return response.content


def _cut_file(data: Dataset, rows: Sequence[Raw]) -> Mapping[str, Sequence[Raw]]:
    order = shuffled(rows)

    def cut(split: Split) -> Sequence[Raw]:
        start = split.parts[0].offset
        return order[start : start + split.rows]

    return {name: cut(split) for name, split in data.splits.items()}


def _write(data: Dataset, name: str, rows: Sequence[Raw], place: Path) -> SplitRecord:
    suffix, content = encode_split(data, rows)
    sha256 = hashlib.sha256(content).hexdigest()
    expected = data.splits[name].file_sha256
    if expected not in {None, sha256}:
        raise InvalidInputError(
            f"the file of {data.task}/{name} has the SHA-256 {sha256} instead of {expected}",
            field=_FIELD,
        )
    path = place / f"{name}{suffix}"
    path.write_bytes(content)
    return SplitRecord(f"{data.task}/{name}", path.name, len(rows), digest_of(data, rows), sha256)


def _compare(data: Dataset, record: SplitRecord, folder: Path) -> None:
    path = folder / data.task / record.file
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != record.sha256:
        raise InvalidInputError(
            f"{path} is missing or was changed since it was fetched",
            field=_FIELD,
            remedy=f"modnorm data fetch {data.task}",
        )
    name = record.name.partition("/")[2]
    rows = split_from_folder(data, name, folder, field=_FIELD) or []
    if digest_of(data, rows) != record.digest:
        raise InvalidInputError(
            f"the rows of {record.name} are not those that were fetched", field=_FIELD
        )
