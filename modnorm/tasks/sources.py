"""Raw rows by source: `bundled:NAME`, `split:TASK/NAME`, a file, a Hugging Face dataset id.

What a source string means depends on the string alone, never on which files exist.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks.files import SUFFIXES, RawRow, confined, read_file
from modnorm.tasks.hub import read_dataset
from modnorm.tasks.splits import DEFAULT_FOLDER, open_split

BUNDLED = Path(__file__).parents[1] / "bundled" / "data"
_BUNDLED_SCHEME = "bundled:"
_SPLIT_SCHEME = "split:"


def bundled_names() -> tuple[str, ...]:
    """Return the names of the data that ship with the project, in alphabetical order."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.jsonl")))


def is_dataset(source: str) -> bool:
    """Tell whether a source is a Hugging Face dataset, and nothing on this machine."""
    return not source.startswith((_BUNDLED_SCHEME, _SPLIT_SCHEME)) and not _names_file(source)


def open_source(spec: DataSpec, *, field: str, roots: Sequence[Path] | None) -> Iterator[RawRow]:
    """Return the raw rows of a source, read as they are asked for.

    Raises:
        InvalidInputError: there is no such source, or it cannot be read; while iterating too.
    """
    source = spec.source
    if source.startswith(_BUNDLED_SCHEME):
        _refuse_dataset_options(spec, field)
        return read_file(_bundled_path(source, field), source, field=field)
    if source.startswith(_SPLIT_SCHEME):
        _refuse_dataset_options(spec, field)
        folders = (DEFAULT_FOLDER,) if roots is None else roots
        rows = open_split(source.removeprefix(_SPLIT_SCHEME), folders=folders, field=field)
        return ((f"row {number}", row) for number, row in enumerate(rows, 1))
    if _names_file(source):
        _refuse_dataset_options(spec, field)
        return read_file(confined(source, f"{field}.source", roots), source, field=field)
    return ((f"row {n}", row) for n, row in enumerate(read_dataset(spec, field=field), 1))


def _names_file(source: str) -> bool:
    return source.startswith((".", "/", "~")) or Path(source).suffix.lower() in SUFFIXES


def _bundled_path(source: str, field: str) -> Path:
    name = source.removeprefix(_BUNDLED_SCHEME)
    if name not in bundled_names():
        raise InvalidInputError(
            f"no data named {name!r} ship with the project",
            field=f"{field}.source",
            remedy=f"one of {', '.join(bundled_names())}",
        )
    return BUNDLED / f"{name}.jsonl"


def _refuse_dataset_options(spec: DataSpec, field: str) -> None:
    for option in ("config", "split", "revision"):
        if getattr(spec, option) is not None:
            raise InvalidInputError(
                f"{spec.source} is not a Hugging Face dataset and has no {option}",
                field=f"{field}.{option}",
            )
