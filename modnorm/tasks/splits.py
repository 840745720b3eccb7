"""Named splits: read from a folder, else from the hub."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec
from modnorm.tasks.catalogue import Dataset, Part, find_split
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.registry import get_task
from modnorm.tasks.row_files import RawRow, find_file, read_dataset, read_file


def verify(data: Dataset, name: str, rows: Sequence[RawRow], *, source: str, field: str) -> str:
    """Return the digest of a split's rows, which are as many as the catalogue has.

    Rows with another digest than the catalogue's are refused.
    """
    split, parse, parsed = data.splits[name], get_task(data.task).parse, []
    for place, row in rows:
        try:
            parsed.append(parse(row))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{source}, {place}, column {error.field!r}: {error.message}", field=field
            ) from error
    digest, expected = rows_digest(parsed), split.digest
    if len(rows) != split.rows:
        fault = f"{len(rows)} rows where {data.task}/{name} has {split.rows}"
    elif expected not in {None, digest}:
        fault = f"rows with the digest {digest} where {data.task}/{name} has {expected}"
    else:
        return digest
    raise InvalidInputError(f"{source} gives {fault}", field=field)


_SHUFFLE_SEED = 42

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LoadedSplit:
    """The rows of a split, verified."""

    rows: Sequence[RawRow]
    digest: str
    taken_from: str
    """The rows' positions in their split or file: `train, rows 1 to 200`."""
    path: Path | None = None
    """The file of a folder; None for rows from their public origin."""
    revision: str | None = None
    """Commit of the rows on the hub, also of a local copy: equal digests mean equal rows."""


def open_split(name: str, *, folders: Sequence[Path], field: str) -> LoadedSplit:
    data, split = find_split(name, field=f"{field}.source")
    for folder in folders:
        loaded = split_from_folder(data, split, folder, field=f"{field}.source")
        if loaded is not None:
            return loaded
    if data.hub is None:
        raise PreconditionError(
            f"the rows of {name} are in none of the data folders",
            field=f"{field}.source",
            remedy=remedy(data),
        )
    try:
        return split_from_hub(data, split, field=field)
    except UnavailableError as error:
        searched = ", ".join(str(folder / data.task) for folder in folders)
        raise UnavailableError(
            f"the rows of {name} are not in {searched or 'a data folder'}, and {error.message}",
            field=f"{field}.source",
            remedy=f"`modnorm data fetch {data.task} --to FOLDER` with a network connection, then "
            "MODNORM_DATA_ROOTS=FOLDER here",
        ) from error


def files_of(data: Dataset, name: str, folder: Path) -> list[tuple[Part, Path]]:
    """Return the files in a folder of data sets that may contain a split, each with its part."""
    parts = (Part(name), *data.splits[name].parts)
    found = ((part, find_file(folder / data.task, part.file)) for part in parts)
    return [(part, path) for part, path in found if path is not None]


def split_from_folder(data: Dataset, name: str, folder: Path, *, field: str) -> LoadedSplit | None:
    """Return the rows of a split from a folder of data sets; None if it has no file of it."""
    faults = []
    for part, path in files_of(data, name, folder):
        source, shuffles = path.name, data.shuffled and part.file == data.task
        try:
            whole: Iterable[RawRow] = read_file(path, str(path), field=field)
            rows = cut(shuffled(whole) if shuffles else whole, part, data.splits[name].rows)
            digest = verify(data, name, rows, source=str(path), field=field)
        except InvalidInputError as error:
            faults.append(error.message)
            continue
        taken_from = span(f"{source}, shuffled" if shuffles else source, part, len(rows))
        return LoadedSplit(rows, digest, taken_from, path, data.revision)
    if not faults:
        return None
    # Parts of one file with different offsets often share a fault.
    raise InvalidInputError("; ".join(dict.fromkeys(faults)), field=field, remedy=remedy(data))


def split_from_hub(data: Dataset, name: str, *, field: str) -> LoadedSplit:
    """Return the rows of a split from the Hugging Face Hub."""
    split = data.splits[name]
    part = split.parts[0]
    spec = DataSpec(
        source=data.hub or "", config=data.config, split=part.file, revision=data.revision
    )
    dataset = read_dataset(spec, field=field)
    rows = cut(dataset.rows, part, split.rows)
    digest = verify(data, name, rows, source=spec.source, field=field)
    taken_from = span(part.file, part, split.rows)
    return LoadedSplit(rows, digest, taken_from, revision=data.revision or dataset.revision)


def shuffled(rows: Iterable[_T]) -> list[_T]:
    """Return Countdown's rows shuffled by the paper's seed; its splits are slices of them."""
    order = list(rows)
    random.Random(_SHUFFLE_SEED).shuffle(order)
    return order


def cut(rows: Iterable[RawRow], part: Part, count: int) -> list[RawRow]:
    """Return the rows of a part, at most `count`."""
    return list(islice(rows, part.offset, part.offset + count))


def span(source: str, part: Part, count: int) -> str:
    """Return a part's row numbers as text."""
    return f"{source}, rows {part.offset + 1:,} to {part.offset + count:,}"


def remedy(data: Dataset) -> str:
    """Return how to get the rows of a task."""
    if data.is_public:
        return f"modnorm data fetch {data.task}"
    return (
        f"get them ({data.licence}), put them into FOLDER/{data.task} (docs/tasks.md), and "
        f"run `modnorm data fetch {data.task} --from FOLDER`"
    )
