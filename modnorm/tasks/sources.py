"""Raw rows by source: `bundled:NAME`, `split:TASK/NAME`, a file or folder, a Hugging Face dataset.

What a source string means depends on the string alone, never on which files exist.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of
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
from modnorm.tasks.splits import DEFAULT_FOLDER, is_in_folder, open_split

BUNDLED = Path(__file__).parents[1] / "bundled" / "data"
_BUNDLED_SCHEME = "bundled:"
_SPLIT_SCHEME = "split:"


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """The raw rows of a source."""

    rows: Iterator[RawRow]
    revision: str | None = None
    """Commit of the Hugging Face dataset whose rows they are; None where there is none."""


def bundled_names() -> tuple[str, ...]:
    """Return the names of the data that ship with the project, in alphabetical order."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.jsonl")))


def is_dataset(source: str) -> bool:
    """Tell whether a source is a Hugging Face dataset, and nothing on this machine."""
    return not source.startswith((_BUNDLED_SCHEME, _SPLIT_SCHEME)) and not _names_file(source)


def needs_hub(source: str, folders: Sequence[Path], *, field: str) -> bool:
    """Tell whether rows come from the Hugging Face Hub: those of a dataset, or of a public split.

    Args:
        source: The source.
        folders: Where named splits are looked for.
        field: Spec path for errors.

    Raises:
        InvalidInputError: there is no split of this name.
    """
    if not source.startswith(_SPLIT_SCHEME):
        return is_dataset(source)
    name = source.removeprefix(_SPLIT_SCHEME)
    data, split = find_split(name, field=f"{field}.source"), name.partition("/")[2]
    return data.hub is not None and not any(is_in_folder(data, split, one) for one in folders)


def open_source(
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None,
    folders: Sequence[Path] | None = None,
) -> OpenedSource:
    """Return the raw rows of a source, read as they are asked for.

    Args:
        spec: Which rows.
        field: Spec path for errors.
        roots: Folders that files must lie under; any file when None.
        folders: Where named splits are looked for, in order and before the hub; when None the
            roots, or the default folder where there are none.

    Raises:
        InvalidInputError: there is no such source, or it cannot be read; while iterating too.
        PreconditionError: named rows are not on this machine and not public, or `datasets` is
            missing.
        UnavailableError: a Hugging Face dataset cannot be reached.
    """
    source = spec.source
    if source.startswith(_BUNDLED_SCHEME):
        _refuse_options(spec, field)
        return OpenedSource(read_file(_bundled_path(source, field), source, field=field))
    if source.startswith(_SPLIT_SCHEME):
        _refuse_options(spec, field)
        if folders is None:
            folders = (DEFAULT_FOLDER,) if roots is None else roots
        return _open_split(source.removeprefix(_SPLIT_SCHEME), field, folders)
    if _names_file(source):
        return OpenedSource(_open_file(spec, field, roots))
    read = read_dataset(spec, field=field)
    return OpenedSource(((f"row {n}", row) for n, row in enumerate(read.rows, 1)), read.commit)


def _open_split(name: str, field: str, folders: Sequence[Path]) -> OpenedSource:
    found = open_split(name, folders=folders, field=field)
    # Rows that were verified against the catalogue are its commit's, wherever they were found.
    pinned = find_split(name, field=field).revision
    return OpenedSource(iter(found.rows), pinned or found.origin.revision)


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
    there = f"one of {', '.join(names)}" if names else "which has no files of rows yet"
    raise InvalidInputError(
        f"{spec.source} is a folder and needs a split", field=f"{field}.split", remedy=there
    )


def _names_file(source: str) -> bool:
    return source.startswith((".", "/", "~")) or Path(source).suffix.lower() in SUFFIXES


def _bundled_path(source: str, field: str) -> Path:
    name = source.removeprefix(_BUNDLED_SCHEME)
    if name not in bundled_names():
        raise InvalidInputError(
            f"no data named {name!r} ship with the project",
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
