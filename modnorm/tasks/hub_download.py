"""Reads Hugging Face datasets with the package `datasets`: from the hub, or offline."""

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
from modnorm.tasks.hub_dataset import HubRows, no_dataset

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REACH_SECONDS = 5.0
_SWITCH, _OFFLINE = Lock(), "HF_HUB_OFFLINE"


def load_dataset(datasets: ModuleType, spec: DataSpec, field: str) -> HubRows:
    """Return the rows of a split, from the hub or from the copy on this machine.

    Args:
        datasets: The package `datasets`.
        spec: Which rows.
        field: Spec path for errors.

    Raises:
        InvalidInputError: the dataset, configuration, split or revision does not exist.
        UnavailableError: it is not cached and cannot be downloaded now.
    """
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
        raise no_dataset(spec, field) from error
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
