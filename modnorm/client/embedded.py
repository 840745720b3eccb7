"""Start of the embedded lab, found by its entry point: the library imports no service."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from modnorm.client.client import Client
from modnorm.client.run_directory import is_held, state_directory
from modnorm.client.settings import ClientSettings, calm_threads
from modnorm.errors import InvalidInputError, ModnormError, PreconditionError
from modnorm.process_output import LAB_LOG, output_to
from modnorm.wire.connection import LabAccess

if TYPE_CHECKING:
    from modnorm.web.sources import Status

GROUP = "modnorm.embedded"
"""Entry points of this group start a lab inside the calling process."""
_REFUSALS = (InvalidInputError, PreconditionError)
"""Errors that the caller must fix before any work starts."""
_PATIENCE_SECONDS = 5.0
"""A lab in this process that does not answer has failed: waiting longer is useless."""


class StartLab(Protocol):
    """Type of an entry point of the group."""

    def __call__(
        self, state: Path, *, cache: Path, data: Sequence[Path] = ()
    ) -> AbstractContextManager[LabAccess]:
        """Start a lab; leaving the context stops it."""


def find_embedded() -> StartLab:
    calm_threads()
    return cast("StartLab", load_service(GROUP))


def load_service(group: str) -> object:
    """Return the entry point of a group that the installed services offer."""
    remedy = "pip install -e '.[services]' in the checkout"
    points = entry_points(group=group)
    if not points:
        raise PreconditionError("embedded runs need the services", remedy=remedy)
    try:
        return cast("object", next(iter(points)).load())
    except ModuleNotFoundError as error:
        raise PreconditionError(
            f"embedded runs need the services: {error.name} is not installed", remedy=remedy
        ) from error


@contextmanager
def embedded_client(
    home: Path, settings: ClientSettings, *, log_output: bool = False
) -> Iterator[Client]:
    """Start a lab that works in a directory and connect to it.

    If a new lab refuses its first request, the directory stays empty.

    The caller has locked `home`. With `log_output` all output of this process and its engine goes
    to the lab's log, except the command's own (`own_stream`).
    """
    start = find_embedded()
    state, cache, data = state_directory(home), settings.cache, settings.data_roots
    is_new, is_unused = not state.exists(), False
    try:
        with (
            output_to(state / LAB_LOG) if log_output else nullcontext(),
            start(state, cache=cache, data=data) as lab,
            Client(
                lab.target,
                timeout=settings.timeout,
                patience=_PATIENCE_SECONDS,
                credentials=lab.credentials,
            ) as client,
        ):
            try:
                yield client
            except _REFUSALS:
                is_unused = is_new and next(iter(client.list()), None) is None
                raise
    finally:
        if is_unused:
            shutil.rmtree(state)


def read_unfinished(run: Path) -> "Status":
    """Return the state of a run directory that has no results yet."""
    from modnorm.analysis.run import stored_spec  # noqa: PLC0415 - loads pandas
    from modnorm.web.run_directories import unknown_progress  # noqa: PLC0415 - as above
    from modnorm.web.sources import Status  # noqa: PLC0415 - as above

    home = next((each for each in (run, run.parent) if state_directory(each).is_dir()), None)
    if home is None:
        return unknown_progress(run)
    try:
        read = cast("Callable[[Path, str], Status | None]", load_service("modnorm.unfinished"))
        found = read(state_directory(home), stored_spec(run).digest)
    except ModnormError as error:
        return replace(unknown_progress(run), error=f"The progress cannot be read: {error}")
    if found is None or not found.live or is_held(home):
        return found or unknown_progress(run)
    progress = found.progress and replace(found.progress, remaining=None, waits_for="", workers={})
    return Status(
        state=f"interrupted while {found.state}",
        error="No process works on this run. The command that started it resumes it.",
        progress=progress,
    )
