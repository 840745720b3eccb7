"""Named splits: found in a folder, else read from the hub.

In a folder that `modnorm.tasks.fetch` wrote, the split `gsm8k/selection` is the file
`gsm8k/selection.jsonl`; a folder of the data sets' own files (`gsm8k/train.jsonl`,
`gsm8k/test.parquet`) serves as well. Wherever they come from, rows are taken only if their number
and their digest are the catalogue's.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import DataSpec
from modnorm.tasks import mbpp
from modnorm.tasks.catalogue import Dataset, Part, Split, find_split
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.files import SUFFIXES, Raw, read_file
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.hub import read_dataset
from modnorm.tasks.math500 import Math500
from modnorm.tasks.olympiadbench import OlympiadBench
from modnorm.tasks.protocol import Row
from modnorm.tasks.rocstories import RocStories
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.uspto50k import Uspto50k

DEFAULT_FOLDER = Path.home() / ".cache" / "modnorm" / "data"
"""Where splits are looked for when no folders are named."""

_SHUFFLE_SEED = 42
_PARSERS: Mapping[str, Callable[[Raw], Row]] = MappingProxyType(
    {
        "countdown": Countdown().parse,
        "gsm8k": Gsm8k().parse,
        "math500": Math500().parse,
        "mbpp": mbpp.parse_row,
        "olympiadbench": OlympiadBench().parse,
        "rocstories": RocStories().parse,
        "uspto50k": Uspto50k().parse,
    }
)


def open_split(name: str, *, folders: Sequence[Path], field: str) -> list[Raw]:
    """Return the raw rows of a split.

    Args:
        name: `TASK/SPLIT`.
        folders: Looked through in order, before the hub.
        field: Spec path for errors.

    Raises:
        InvalidInputError: there is no such split, or a folder's files give other rows.
        PreconditionError: no folder has it, and it is on no hub, or `datasets` is missing.
        UnavailableError: the hub cannot be reached.
    """
    data, split = find_split(name, field=f"{field}.source")
    for folder in folders:
        rows = split_from_folder(data, name.partition("/")[2], folder, field=field)
        if rows is not None:
            return rows
    if data.hub is None:
        raise PreconditionError(
            f"the rows of {name} are in none of the data folders",
            field=f"{field}.source",
            remedy=_remedy(data),
        )
    return split_from_hub(data, split, field=field)


def split_from_folder(data: Dataset, name: str, folder: Path, *, field: str) -> list[Raw] | None:
    """Return the raw rows of a split from a folder of data sets, None when it has no file of it.

    Raises:
        InvalidInputError: it has files, but none gives the split's rows.
    """
    split = data.splits[name]
    found = []
    for part in (Part(name), *split.parts):
        path = _find_file(folder / data.task, part.file)
        if path is not None:
            rows = _cut(_read(data, path, part, field), part, split)
            if problem(data, split, rows) is None:
                return rows
            found.append(path.name)
    if found:
        raise InvalidInputError(
            f"{', '.join(found)} in {folder / data.task} do not hold the {split.rows} rows of "
            f"{data.task}/{name}",
            field=f"{field}.source",
            remedy=_remedy(data),
        )
    return None


def split_from_hub(data: Dataset, split: Split, *, field: str) -> list[Raw]:
    """Return the raw rows of a split from the Hugging Face hub.

    Raises:
        InvalidInputError: the hub's rows are not those of the catalogue.
        PreconditionError: the package `datasets` is not installed.
        UnavailableError: the hub cannot be reached.
    """
    part = split.parts[0]
    spec = DataSpec(
        source=data.hub or "", config=data.config, split=part.file, revision=data.revision
    )
    rows = _cut(read_dataset(spec, field=field), part, split)
    fault = problem(data, split, rows)
    if fault is not None:
        raise InvalidInputError(f"{data.hub}: {fault}", field=f"{field}.source")
    return rows


def shuffled(rows: Iterable[Raw]) -> list[Raw]:
    """Return Countdown's rows in the order that its splits are cut from (paper's seed)."""
    order = list(rows)
    random.Random(_SHUFFLE_SEED).shuffle(order)
    return order


def problem(data: Dataset, split: Split, rows: Sequence[Raw]) -> str | None:
    """Return what keeps rows from being those of a split, None when they are."""
    if len(rows) != split.rows:
        return f"{len(rows)} rows instead of {split.rows}"
    try:
        digest = digest_of(data, rows)
    except InvalidInputError as error:
        return f"column {error.field!r} {error.message}"
    if split.digest not in {None, digest}:
        return f"the rows have the digest {digest} instead of {split.digest}"
    return None


def digest_of(data: Dataset, rows: Iterable[Raw]) -> str:
    """Return the digest of raw rows, brought to their task's schema.

    Raises:
        InvalidInputError: a row breaks the schema.
    """
    return rows_digest([_PARSERS[data.task](row) for row in rows])


def _cut(rows: Iterable[Raw], part: Part, split: Split) -> list[Raw]:
    return list(islice(rows, part.offset, part.offset + split.rows))


def _read(data: Dataset, path: Path, part: Part, field: str) -> list[Raw]:
    rows = [row for _, row in read_file(path, str(path), field=field)]
    return shuffled(rows) if data.shuffled and part.file == data.task else rows


def _find_file(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def _remedy(data: Dataset) -> str:
    if data.hub is None and data.url is None:
        return f"ask for them ({data.licence}) and put them into a data folder, see docs/tasks.md"
    return f"modnorm data fetch {data.task}"
