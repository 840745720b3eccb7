"""Rows of a Hugging Face dataset, through the optional package `datasets`."""

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec

# `datasets` takes a bare name such as `json` for a reader of local files: an owner is needed.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

_Rows = Iterable[Mapping[str, object]]


def read_dataset(spec: DataSpec, *, field: str) -> _Rows:
    """Return the rows of one split of a dataset, in order.

    Raises:
        InvalidInputError: the id, configuration, split or revision does not exist.
        PreconditionError: the package `datasets` is not installed.
        UnavailableError: the dataset is not cached and cannot be downloaded now.
    """
    # `datasets` would read a local folder of that name instead.
    if not _ID.fullmatch(spec.source) or Path(spec.source).exists():
        raise _no_dataset(spec, field)
    if spec.split is None:
        raise InvalidInputError(
            f"{spec.source} needs a split", field=f"{field}.split", remedy="`test`, for instance"
        )
    return _load(_datasets(field), spec, field)


def _datasets(field: str) -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise PreconditionError(
            "reading a Hugging Face dataset needs the package `datasets`",
            field=f"{field}.source",
            remedy="pip install 'modnorm[data]', or name a file",
        ) from error


def _load(datasets: ModuleType, spec: DataSpec, field: str) -> _Rows:
    try:
        rows = datasets.load_dataset(
            spec.source, name=spec.config, split=spec.split, revision=spec.revision
        )
    except datasets.exceptions.DatasetNotFoundError as error:
        raise _no_dataset(spec, field) from error
    except ValueError as error:
        raise InvalidInputError(f"{spec.source}: {error}", field=field) from error
    except OSError as error:
        raise UnavailableError(
            f"cannot fetch {spec.source} from the Hugging Face hub: {error}",
            field=f"{field}.source",
            remedy="download it first, or name a file",
        ) from error
    return cast("_Rows", rows)


def _no_dataset(spec: DataSpec, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"there is no Hugging Face dataset {spec.source}",
        field=f"{field}.source",
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json or .parquet, bundled data "
        "begin with bundled:",
    )
