"""Reads Hugging Face datasets with the package `datasets`, from the hub or its local copy."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import cast

import httpx
from huggingface_hub import constants, get_session

from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.spec import DataSpec

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REACH_SECONDS = 5.0
_OFFLINE_LOCK, _OFFLINE = Lock(), "HF_HUB_OFFLINE"

Rows = Iterable[Mapping[str, object]]


def load_dataset(datasets: ModuleType, spec: DataSpec, field: str) -> tuple[Rows, str | None]:
    """Return the rows of a split and their commit, from the hub or from the local copy."""
    if _is_reachable():
        return _read(datasets, spec, field)
    with _offline(datasets):
        return _read(datasets, spec, field)


def _is_reachable() -> bool:
    """Whether the hub answers within seconds; its own client would retry for half a minute."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
    except (OSError, httpx.HTTPError):
        return False
    return True


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Let the hub's client use local copies only, by its own offline setting.

    The setting holds for the process. Other threads lose nothing: the hub cannot be reached.
    """
    modules: Sequence[ModuleType] = (constants, datasets.config)
    with _OFFLINE_LOCK:
        before = [getattr(module, _OFFLINE) for module in modules]
        try:
            for module in modules:
                setattr(module, _OFFLINE, True)
            yield
        finally:
            for module, value in zip(modules, before, strict=True):
                setattr(module, _OFFLINE, value)


def _read(datasets: ModuleType, spec: DataSpec, field: str) -> tuple[Rows, str | None]:
    try:
        builder = datasets.load_dataset_builder(
            spec.source, name=spec.config, revision=spec.revision
        )
        commit = _commit(builder.hash, spec, field)
        builder.download_and_prepare()
        rows = builder.as_dataset(split=spec.split)
    except datasets.exceptions.DatasetNotFoundError:
        raise  # it is an OSError, but no outage
    except (OSError, httpx.HTTPError) as error:
        raise UnavailableError(
            f"cannot fetch {spec.source} from the Hugging Face Hub: {error}",
            field=f"{field}.source",
            remedy="download it first, or name a file",
        ) from error
    # RuntimeError: the dataset is a script, which `datasets` no longer supports.
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise InvalidInputError(f"{spec.source}: {error}", field=field) from error
    return cast("Rows", rows), commit


def _commit(version: object, spec: DataSpec, field: str) -> str | None:
    """Return the commit of the rows; offline, `datasets` accepts any commit with a local copy."""
    commit = version if isinstance(version, str) and _COMMIT.fullmatch(version) else None
    wanted = spec.revision
    if wanted is not None and _COMMIT.fullmatch(wanted) and commit != wanted:
        raise UnavailableError(
            f"cannot fetch {spec.source} at {wanted} from the Hugging Face Hub; the copy on this "
            f"machine is of {commit or 'an unknown commit'}",
            field=f"{field}.revision",
            remedy="try again, or name a file",
        )
    return commit
