"""Finished runs that commands read: directories, or an experiment of a lab."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import note
from modnorm.cli.options import in_lab, lab_of, numbers

if TYPE_CHECKING:
    from modnorm.analysis.comparison import Results
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


def load_runs(directories: Sequence[Path], experts: str | None) -> "list[Results]":
    """Return the finished runs of directories and folders; stderr names those left out.

    Args:
        directories: Run directories, or folders with some.
        experts: The value of --experts: a list of K that the runs also report.

    Raises:
        InvalidInputError: a path holds no run, the text is no list of numbers, or a run has the
            answers of fewer experts.
        PreconditionError: an expert of a run skipped rows.
    """
    from modnorm.analysis.comparison import load_all_results
    from modnorm.analysis.run_folders import finished_runs

    sizes = () if experts is None else numbers(experts, "experts", int)
    runs = load_all_results(finished_runs(directories, note))
    if not sizes:
        return runs
    from modnorm.analysis.smaller_ensembles import add_ensembles

    return [add_ensembles(run, sizes) for run in runs]
