"""Rows of a Hugging Face dataset, through the optional package `datasets`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import cast

import httpx
from huggingface_hub import constants, get_session

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.spec import DataSpec

# `datasets` takes a bare name such as `json` for a reader of local files: an owner is needed.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REACH_SECONDS = 5.0
_SWITCH, _OFFLINE = Lock(), "HF_HUB_OFFLINE"


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


def _load(datasets: ModuleType, spec: DataSpec, field: str) -> HubRows:
    if _is_reachable():
        return _read(datasets, spec, field)
    with _offline(datasets):
        return _read(datasets, spec, field)


def _is_reachable() -> bool:
    """Tell whether the hub answers, in seconds: its own client would try for half a minute."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
    except (OSError, httpx.HTTPError):
        return False
    return True


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Have the hub's client look at what is on this machine only, as its own switch does.

    The switch is one for the process. Other threads lose nothing by it: the hub cannot be reached.
    """
    modules: Sequence[ModuleType] = (constants, datasets.config)
    with _SWITCH:
        before = [getattr(module, _OFFLINE) for module in modules]
        try:
            for module in modules:
                setattr(module, _OFFLINE, True)
            yield
        finally:
            for module, value in zip(modules, before, strict=True):
                setattr(module, _OFFLINE, value)


def _read(datasets: ModuleType, spec: DataSpec, field: str) -> HubRows:
    try:
        builder = datasets.load_dataset_builder(
            spec.source, name=spec.config, revision=spec.revision
        )
        commit = _commit(builder.hash, spec, field)
        builder.download_and_prepare()
        rows = builder.as_dataset(split=spec.split)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise _no_dataset(spec, field) from error
    except (OSError, httpx.HTTPError) as error:
        raise UnavailableError(
            f"cannot fetch {spec.source} from the Hugging Face Hub: {error}",
            field=f"{field}.source",
            remedy="download it first, or name a file",
        ) from error
    # RuntimeError: the dataset is a script, which `datasets` no longer runs.
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise InvalidInputError(f"{spec.source}: {error}", field=field) from error
    return HubRows(cast("Iterable[Mapping[str, object]]", rows), commit)


def _commit(found: object, spec: DataSpec, field: str) -> str | None:
    """Return the commit that was found; offline, `datasets` takes any that it has a copy of."""
    commit = found if isinstance(found, str) and _COMMIT.fullmatch(found) else None
    wanted = spec.revision
    if wanted is not None and _COMMIT.fullmatch(wanted) and commit != wanted:
        raise UnavailableError(
            f"cannot fetch {spec.source} at {wanted} from the Hugging Face Hub; the copy on this "
            f"machine is of {commit or 'an unknown commit'}",
            field=f"{field}.revision",
            remedy="try again, or name a file",
        )
    return commit


def _no_dataset(spec: DataSpec, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"there is no Hugging Face dataset {spec.source}",
        field=f"{field}.source",
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json, .parquet or .csv, folders "
        "begin with ./ or /, bundled data with bundled:",
    )
