"""Rows of a Hugging Face dataset, through the optional package `datasets`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import DataSpec

# `datasets` takes a bare name such as `json` for a reader of local files: an owner is needed.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubRows:
    """The rows of one split of a dataset, in order."""

    rows: Iterable[Mapping[str, object]]
    commit: str | None
    """Commit that they were read at; None for an old copy on this machine that does not say."""


def read_dataset(spec: DataSpec, *, field: str) -> HubRows:
    """Return the rows of one split of a dataset.

    Raises:
        InvalidInputError: the id, configuration, split or revision does not exist, or the
            dataset cannot be read.
        PreconditionError: the package `datasets` is not installed.
        UnavailableError: the dataset, or the commit asked for, is not cached and cannot be
            downloaded now.
    """
    check_dataset(spec, field=field)
    datasets = _datasets(field)
    from modnorm.tasks.hub_download import load_dataset  # noqa: PLC0415 - loads httpx

    return load_dataset(datasets, spec, field)


def check_dataset(spec: DataSpec, *, field: str) -> None:
    """Check that rows can be those of a dataset; the hub is not asked.

    Raises:
        InvalidInputError: the source is no dataset id, or no split is named.
    """
    # `datasets` would read a local folder of that name instead.
    if not _ID.fullmatch(spec.source) or Path(spec.source).exists():
        raise no_dataset(spec, field)
    if spec.split is None:
        raise InvalidInputError(
            f"{spec.source} needs a split", field=f"{field}.split", remedy="`test`, for instance"
        )


def _datasets(field: str) -> ModuleType:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise PreconditionError(
            "reading a Hugging Face dataset needs the package `datasets`",
            field=f"{field}.source",
            remedy="pip install 'modnorm[data]', or name a file",
        ) from error


def no_dataset(spec: DataSpec, field: str) -> InvalidInputError:
    """Return the error of a source that no dataset has."""
    return InvalidInputError(
        f"there is no Hugging Face dataset {spec.source}",
        field=f"{field}.source",
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json, .parquet or .csv, folders "
        "begin with ./ or /, bundled data with bundled:",
    )
