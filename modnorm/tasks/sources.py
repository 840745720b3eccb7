"""Raw rows by source: `bundled:NAME`, `split:TASK/NAME`, a file or folder, a Hugging Face dataset.

The meaning of a source depends on its text only, never on existing files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of
from modnorm.host import default_cache
from modnorm.spec import DataSpec
from modnorm.tasks.catalogue import find_split
from modnorm.tasks.hub_dataset import read_dataset
from modnorm.tasks.row_files import (
    SUFFIXES,
    RawRow,
    read_file,
    resolve_file,
    resolve_in_folder,
    row_files,
)
from modnorm.tasks.splits import is_in_folder, open_split

BUNDLED = Path(__file__).parents[1] / "bundled" / "data"
_BUNDLED_SCHEME = "bundled:"
_SPLIT_SCHEME = "split:"


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """The raw rows of a source."""

    rows: Iterator[RawRow]
    revision: str | None = None


def bundled_names() -> tuple[str, ...]:
    """Return the names of the data that ship with the project, in alphabetical order."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.jsonl")))


def is_dataset(source: str) -> bool:
    """Whether a source is a Hugging Face dataset and no local data."""
    return not source.startswith((_BUNDLED_SCHEME, _SPLIT_SCHEME)) and not _names_file(source)


def needs_hub(source: str, folders: Sequence[Path], *, field: str) -> bool:
    """Whether rows come from the Hugging Face Hub, from a dataset or a public split."""
    if not source.startswith(_SPLIT_SCHEME):
        return is_dataset(source)
    name = source.removeprefix(_SPLIT_SCHEME)
    data, split = find_split(name, field=f"{field}.source"), name.partition("/")[2]
    return data.hub is not None and not any(
        is_in_folder(data, split, folder) for folder in folders
    )


def open_source(
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None,
    folders: Sequence[Path] | None = None,
) -> OpenedSource:
    """Return the raw rows of a source; they are read during the iteration."""
    source = spec.source
    if source.startswith(_BUNDLED_SCHEME):
        _refuse_options(spec, field)
        return OpenedSource(read_file(_bundled_path(source, field), source, field=field))
    if source.startswith(_SPLIT_SCHEME):
        _refuse_options(spec, field)
        if folders is None:
            folders = (default_cache() / "data",) if roots is None else roots
        name = source.removeprefix(_SPLIT_SCHEME)
        split = open_split(name, folders=folders, field=field)
        # Verified rows are those of the catalogue's commit, also in a local copy.
        pinned = find_split(name, field=field).revision
        return OpenedSource(iter(split.rows), pinned or split.origin.revision)
    if _names_file(source):
        return OpenedSource(_open_file(spec, field, roots))
    dataset = read_dataset(spec, field=field)
    rows = ((f"row {number}", row) for number, row in enumerate(dataset.rows, 1))
    return OpenedSource(rows, dataset.commit)


def _open_file(spec: DataSpec, field: str, roots: Sequence[Path] | None) -> Iterator[RawRow]:
    if spec.split is None:
        _refuse_options(spec, field)
        _refuse_folder(spec, field, roots)
        return read_file(
            resolve_file(spec.source, f"{field}.source", roots), spec.source, field=field
        )
    _refuse_options(spec, field, allowed="split")
    path = resolve_in_folder(spec.source, spec.split, f"{field}.split", roots)
    return read_file(path, f"{spec.source}/{path.name}", field=field)


def _refuse_folder(spec: DataSpec, field: str, roots: Sequence[Path] | None) -> None:
    names = row_files(spec.source, roots)
    if names is None:
        return
    remedy = f"one of {', '.join(names)}" if names else "put a file of rows into it"
    raise InvalidInputError(
        f"{spec.source} is a folder and needs a split", field=f"{field}.split", remedy=remedy
    )


def _names_file(source: str) -> bool:
    return source.startswith((".", "/", "~")) or Path(source).suffix.lower() in SUFFIXES


def _bundled_path(source: str, field: str) -> Path:
    name = source.removeprefix(_BUNDLED_SCHEME)
    if name not in bundled_names():
        raise InvalidInputError(
            f"there are no bundled data named {name!r}",
            field=f"{field}.source",
            remedy=one_of(name, bundled_names()),
        )
    return BUNDLED / f"{name}.jsonl"


def _refuse_options(spec: DataSpec, field: str, *, allowed: str | None = None) -> None:
    for option in ("config", "split", "revision"):
        if option != allowed and getattr(spec, option) is not None:
            raise InvalidInputError(
                f"{spec.source} is not a Hugging Face dataset and has no {option}",
                field=f"{field}.{option}",
            )
