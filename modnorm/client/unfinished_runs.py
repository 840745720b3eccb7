"""State and progress of a run that `modnorm run` works on, read beside it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from modnorm.analysis.run import stored_spec
from modnorm.client.embedded import load_service
from modnorm.client.rundir import is_held, state_directory
from modnorm.errors import ModnormError
from modnorm.web.run_directories import unknown_progress
from modnorm.web.sources import Unfinished

GROUP = "modnorm.unfinished"
"""Entry points of this group read the state of a spec from the directory of an embedded lab."""
ReadState = Callable[[Path, str], Unfinished | None]
"""Type of these entry points: by state directory and digest of the spec. Returns None if the lab
has no such experiment."""


def read_unfinished(run: Path) -> Unfinished:
    """Return the state of a run directory that has no results yet."""
    home = next((each for each in (run, run.parent) if state_directory(each).is_dir()), None)
    if home is None:
        return unknown_progress(run)
    try:
        read = cast("ReadState", load_service(GROUP))
        found = read(state_directory(home), stored_spec(run).digest)
    except ModnormError as error:
        return replace(unknown_progress(run), error=f"The progress cannot be read: {error}")
    if found is None or not found.live or is_held(home):
        return found or unknown_progress(run)
    return _interrupted(found)


def _interrupted(found: Unfinished) -> Unfinished:
    """Return the state of a run whose process has ended."""
    progress = found.progress and replace(found.progress, remaining=None, waits_for="", workers=())
    return Unfinished(
        state=f"interrupted while {found.state}",
        error="No process works on this run. The command that started it resumes it.",
        progress=progress,
    )
