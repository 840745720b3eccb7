"""Rows of Hugging Face datasets, which need the optional package `datasets`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType

from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError, shortened
from modnorm.spec import DataSpec

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REACH_SECONDS = 5.0
_OFFLINE_LOCK, _OFFLINE = Lock(), "HF_HUB_OFFLINE"
# `datasets` reads local files for a bare name such as `json`, so an owner is required.
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubRows:
    """The rows of one split of a dataset, in order."""

    rows: Iterable[Mapping[str, object]]
    commit: str | None
    """Commit of the rows; None for an old local copy without a record of it."""


def read_dataset(spec: DataSpec, *, field: str) -> HubRows:
    check_dataset(spec, field=field)
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        raise PreconditionError(
            "reading a Hugging Face dataset needs the package `datasets`",
            field=f"{field}.source",
            remedy="pip install 'modnorm[data]', or name a file",
        ) from error
    with nullcontext() if _is_reachable() else _offline(datasets):
        return _read(datasets, spec, field)


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
        remedy="datasets are OWNER/NAME, files end in .jsonl, .json, .parquet or .csv, folders "
        "begin with ./ or /, bundled data with bundled:",
    )


def _is_reachable() -> bool:
    """Whether the hub answers within seconds; its own client would retry for half a minute."""
    import httpx  # noqa: PLC0415 - only where a dataset is read
    from huggingface_hub import constants, get_session  # noqa: PLC0415 - as above

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
    except (OSError, httpx.HTTPError):
        return False
    return True


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Let the hub's client use local copies only, by its own offline setting."""
    modules = (import_module("huggingface_hub.constants"), datasets.config)
    with _OFFLINE_LOCK:
        before = [getattr(module, _OFFLINE) for module in modules]
        try:
            for module in modules:
                setattr(module, _OFFLINE, True)
            yield
        finally:
            for module, value in zip(modules, before, strict=True):
                setattr(module, _OFFLINE, value)


def _read(datasets: ModuleType, spec: DataSpec, field: str) -> HubRows:
    import httpx  # noqa: PLC0415 - as above

    try:
        builder = datasets.load_dataset_builder(
            spec.source, name=spec.config, revision=spec.revision
        )
        commit = _commit(builder.hash, spec, field)
        builder.download_and_prepare()
        return HubRows(builder.as_dataset(split=spec.split), commit)
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
