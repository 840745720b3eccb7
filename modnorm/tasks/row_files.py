"""Reads rows from JSONL, JSON, Parquet and CSV files, each with its place for errors."""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import NoReturn, cast

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError, shortened
from modnorm.files import existing_path, lies_under, read_fault
from modnorm.spec import DataSpec
from modnorm.tasks.columns import number_text

Raw = Mapping[str, object]
RawRow = tuple[str, Raw]
"""A row's place for error messages ("line 17" or "row 17", counted from 1), and its columns."""


def read_file(
    path: Path, source: str, *, field: str, named_by: str | None = None
) -> Iterator[RawRow]:
    """Return the rows of a file; they are read during the iteration."""
    named_by = named_by or f"{field}.source"
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InvalidInputError(
            f"cannot tell the format of {source}",
            field=named_by,
            remedy=f"a name that ends in {', '.join(SUFFIXES)}",
        )
    return _readable(reader(path, source, field), source, named_by)


def read_json_lines(path: Path, source: str, *, field: str) -> Iterator[RawRow]:
    """Return the rows of a pipe of JSON lines, whose name tells no format; see `read_file`."""
    return _readable(_read_json_lines(path, source, field), source, field)


def find_file(folder: Path, stem: str) -> Path | None:
    """Return the file with a name and any known suffix; None without one."""
    candidates = (folder / f"{stem}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def resolve_file(source: str, field: str, roots: Sequence[Path] | None) -> Path:
    """Return a file's path with links resolved; a file outside the roots counts as missing."""
    paths = map(existing_path, (source, *(str(root / source) for root in roots or ())))
    found = [path for path in paths if path and (roots is None or lies_under(path, roots))]
    for path in found:
        if path.is_file():
            return path
    if any(path.is_dir() for path in found):
        file = "train.jsonl" if field.endswith(".source") else "FILE"
        raise InvalidInputError(
            f"{shortened(source)} is a folder",
            field=field,
            remedy=f"name a file of it, for example {shortened(source).rstrip('/')}/{file}",
        )
    place = "" if roots is None else " under the data roots"
    raise InvalidInputError(
        f"there is no file {shortened(source)}{place}",
        field=field,
        remedy=_search_hint(source, roots),
    )


def _search_hint(source: str, roots: Sequence[Path] | None) -> str | None:
    """Return where relative paths start; None for an absolute path."""
    if source.startswith(("/", "~")):
        return None
    if roots is not None:
        return (
            "put it below a data root; relative paths start there or at the service's "
            "working directory"
        )
    return f"relative paths start at the working directory, {Path.cwd()}"


def _readable(rows: Iterator[RawRow], source: str, named_by: str) -> Iterator[RawRow]:
    try:
        yield from rows
    except (OSError, ImportError) as error:  # a dataset's images need another package
        raise InvalidInputError(
            f"cannot read {source}: {read_fault(error)}", field=named_by
        ) from error


def _read_json_lines(path: Path, source: str, field: str) -> Iterator[RawRow]:
    """Yield one row a line; skip blank lines."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"line {number}"
                yield place, decode_row(line.strip(), f"{source}, {place}", field=field)


def decode_row(text: str | bytes, place: str, *, field: str) -> Raw:
    """Return the columns of a row that is a JSON object."""
    remedy = "write each row as one JSON object in a line; a file of one list is named .json"
    return _columns(_decode(text, place, field, remedy), place, field, remedy)


def _read_json(path: Path, source: str, field: str) -> Iterator[RawRow]:
    remedy = "write one list of rows; a file with one row a line is named .jsonl"
    rows = _decode(path.read_bytes(), source, field, remedy)
    if not isinstance(rows, list):
        raise InvalidInputError(f"{source} is not a JSON list of rows", field=field, remedy=remedy)
    for number, row in enumerate(rows, 1):
        place = f"row {number}"
        yield place, _columns(row, f"{source}, {place}", field)


def _read_parquet(path: Path, source: str, field: str) -> Iterator[RawRow]:
    from pyarrow import ArrowException  # noqa: PLC0415 - pyarrow loads numpy
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - as above

    try:
        with ParquetFile(path) as file:
            _refuse_repeated_columns(file.schema_arrow.names, source, field)
            batches = (batch.to_pylist() for batch in file.iter_batches())
            for number, row in enumerate(chain.from_iterable(batches), 1):
                yield f"row {number}", row
    # ValueError, ArithmeticError: text that is not UTF-8, times outside Python's range.
    except (ArrowException, ValueError, ArithmeticError) as error:
        raise InvalidInputError(
            f"{source} is no readable Parquet file: {error}", field=field
        ) from error


def _read_csv(path: Path, source: str, field: str) -> Iterator[RawRow]:
    """Yield one row a record; the first line names the columns, which are texts.

    A column of floats writes 98 as `98.0`; it becomes `98`, as other formats' numbers do.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            _refuse_repeated_columns(reader.fieldnames or (), f"{source}, line 1", field)
            for row in reader:
                place = f"line {reader.line_num}"
                if None in row or None in row.values():
                    raise InvalidInputError(
                        f"{source}, {place}: not as many columns as the first line", field=field
                    )
                yield place, {name: _cell(value) for name, value in row.items()}
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{source} is no UTF-8 text: {error}", field=field, remedy="save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise InvalidInputError(
            f"{source} is no readable CSV file: {error}", field=field
        ) from error


def _refuse_repeated_columns(names: Iterable[str], place: str, field: str) -> None:
    """Refuse two columns of one name; a row would hold only the last."""
    if twice := next((name for name, count in Counter(names).items() if name and count > 1), ""):
        raise InvalidInputError(f"{place}: two columns are named {twice!r}", field=field)


def _cell(text: str) -> str:
    """Return a cell; a text that a float would be written as, in the form of numbers."""
    with suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and repr(value) == text:
            return number_text(value)
    return text


def _decode(text: str | bytes, place: str, field: str, remedy: str | None = None) -> object:
    try:
        if isinstance(text, bytes):  # `json.loads` would take UTF-16 and UTF-32 too
            text = text.decode("utf-8-sig")
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys
        )
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{place} is no UTF-8 text: {error}", field=field, remedy="save it as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{place}: not valid JSON: {_reason(error)}", field=field, remedy=remedy
        ) from error


def _reason(error: Exception) -> str:
    """Return what is wrong, for a text of one line without its number."""
    if isinstance(error, json.JSONDecodeError) and error.lineno == 1:
        return f"{error.msg}: column {error.colno}"
    return str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"{next(key for key in counts if counts[key] > 1)} appears twice")
    return content


def _columns(row: object, place: str, field: str, remedy: str | None = None) -> Raw:
    if not isinstance(row, dict):
        raise InvalidInputError(f"{place}: not a JSON object", field=field, remedy=remedy)
    return cast("dict[str, object]", row)


_READERS: Mapping[str, Callable[[Path, str, str], Iterator[RawRow]]] = {
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
}
SUFFIXES = tuple(_READERS)


_COMMIT = re.compile(r"[0-9a-f]{40}")
# `datasets` reads local files for a bare name such as `json`, so an owner is required.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """The raw rows of a source, read during the iteration."""

    rows: Iterator[RawRow]
    revision: str | None = None
    """Commit of a Hugging Face dataset; None for other sources and copies without a record."""


def read_dataset(spec: DataSpec, *, field: str) -> OpenedSource:
    """Return the rows of one split of a dataset, in order."""
    import httpx  # noqa: PLC0415 - only where a dataset is read

    check_dataset(spec, field=field)
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        raise PreconditionError(
            "reading a Hugging Face dataset needs the package `datasets`",
            field=f"{field}.source",
            remedy="pip install -e '.[data]' in the checkout, or name a file",
        ) from error
    try:
        builder = datasets.load_dataset_builder(
            spec.source, name=spec.config, revision=spec.revision
        )
        commit = _commit(builder.hash, spec, field)
        builder.download_and_prepare()
        rows = enumerate(builder.as_dataset(split=spec.split), 1)
        placed = ((f"row {number}", row) for number, row in rows)
        return OpenedSource(_readable(placed, spec.source, f"{field}.source"), commit)
    except datasets.exceptions.DatasetNotFoundError as error:  # an OSError, but no outage
        raise no_dataset(spec, field) from error
    except (OSError, httpx.HTTPError) as error:
        raise UnavailableError(
            f"cannot fetch {spec.source} from the Hugging Face Hub: {error}",
            field=f"{field}.source",
            remedy="download it first, or name a file",
        ) from error
    # RuntimeError: the dataset is a script, which `datasets` no longer supports.
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise InvalidInputError(f"{spec.source}: {error}", field=field) from error


def check_dataset(spec: DataSpec, *, field: str) -> None:
    """Check that a spec can name a dataset, without a request to the hub."""
    # `datasets` would read an existing local folder of that name instead.
    if not _ID.fullmatch(spec.source) or Path(spec.source).exists():
        raise no_dataset(spec, field)
    if spec.split is None:
        raise InvalidInputError(
            f"{spec.source} needs a split", field=f"{field}.split", remedy="for instance `test`"
        )


def no_dataset(spec: DataSpec, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"there is no Hugging Face dataset {shortened(spec.source)}",
        field=f"{field}.source",
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json, .parquet or .csv, "
        "bundled data begin with bundled:",
    )


def _commit(version: object, spec: DataSpec, field: str) -> str | None:
    """Return the commit of the rows; offline, `datasets` accepts any commit with a local copy."""
    commit = version if isinstance(version, str) and _COMMIT.fullmatch(version) else None
    wanted = spec.revision
    if wanted is not None and _COMMIT.fullmatch(wanted) and commit != wanted:
        raise UnavailableError(
            f"cannot fetch {spec.source} at {wanted} from the Hugging Face Hub; the copy on this "
            f"machine is of {commit or 'an unknown commit'}",
            field=f"{field}.revision",
        )
    return commit
