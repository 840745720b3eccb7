"""Rows of Hugging Face datasets, which need the optional package `datasets`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from modnorm.errors import InvalidInputError, PreconditionError, shortened
from modnorm.spec import DataSpec

# `datasets` reads local files for a bare name such as `json`, so an owner is required.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubRows:
    """The rows of one split of a dataset, in order."""

    rows: Iterable[Mapping[str, object]]
    commit: str | None
    """Commit of the rows; None for an old local copy without a record of it."""


def read_dataset(spec: DataSpec, *, field: str) -> HubRows:
    """Return the rows of one split of a dataset."""
    check_dataset(spec, field=field)
    datasets = _datasets(field)
    from modnorm.tasks.hub_download import load_dataset  # noqa: PLC0415 - loads httpx

    try:
        return HubRows(*load_dataset(datasets, spec, field))
    except datasets.exceptions.DatasetNotFoundError as error:
        raise no_dataset(spec, field) from error


def check_dataset(spec: DataSpec, *, field: str) -> None:
    """Check that a spec can name a dataset, without a request to the hub."""
    # `datasets` would read an existing local folder of that name instead.
    if not _ID.fullmatch(spec.source) or Path(spec.source).exists():
        raise no_dataset(spec, field)
    if spec.split is None:
        raise InvalidInputError(
            f"{spec.source} needs a split", field=f"{field}.split", remedy="for instance `test`"
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
    """Return the error for a source that is no dataset."""
    return InvalidInputError(
        f"there is no Hugging Face dataset {shortened(spec.source)}",
        field=f"{field}.source",
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json, .parquet or .csv, folders "
        "begin with ./ or /, bundled data with bundled:",
    )
