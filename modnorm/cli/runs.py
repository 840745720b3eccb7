"""Finished runs that commands read: a directory, or an experiment of a lab."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.options import in_lab, lab_of

if TYPE_CHECKING:
    from modnorm.analysis.finished_run import FinishedRun


@contextmanager
def opened_run(run: str, server: str | None) -> Iterator["FinishedRun"]:
    """Yield a finished run.

    Raises:
        InvalidInputError: the directory holds no run.
        NotFoundError: the lab has no such experiment.
        PreconditionError: the experiment of the lab has not succeeded.
    """
    from modnorm.analysis.saved_run import SavedRun

    lab = lab_of(run, server)
    if lab is None:
        yield SavedRun(Path(run))
        return
    from modnorm.client.lab_run import LabRun

    with in_lab(run, lab) as (client, experiment):
        yield LabRun(client, experiment)
