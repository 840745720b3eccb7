"""Finished runs that commands read: directories, or an experiment of a lab."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import note
from modnorm.cli.options import in_lab, lab_of, numbers

if TYPE_CHECKING:
    from modnorm.analysis.comparison import Results
    from modnorm.analysis.saved_run import SavedRun


@contextmanager
def opened_run(run: str, server: str | None) -> Iterator["SavedRun"]:
    """Yield a finished run.

    Raises:
        InvalidInputError: the directory holds no run.
        NotFoundError: the lab has no such experiment.
        PreconditionError: the experiment of the lab has not succeeded.
    """
    from modnorm.analysis.saved_run import SavedRun

    yield SavedRun(local_run(run, server))


def local_run(run: str, server: str | None = None) -> Path:
    """Return the directory of a run; that of an experiment is fetched into the cache.

    Raises:
        NotFoundError: the lab has no such experiment.
        PreconditionError: the experiment of the lab has not succeeded.
    """
    lab = lab_of(run, server)
    if lab is None:
        return Path(run)
    from modnorm.client.export import cached_run

    with in_lab(run, lab) as (client, experiment):
        return cached_run(client, experiment.id)


def load_runs(directories: Sequence[Path], experts: str | None) -> "list[Results]":
    """Return the finished runs of directories and folders; stderr names those left out.

    Args:
        directories: Run directories, folders with some, or ids of the lab of `MODNORM_SERVER`.
        experts: The value of --experts: a list of K that the runs also report.

    Raises:
        InvalidInputError: a path holds no run, the text is no list of numbers, or a run has the
            answers of fewer experts.
        PreconditionError: an expert of a run skipped rows.
    """
    from modnorm.analysis.comparison import load_all_results
    from modnorm.analysis.run_folders import finished_runs

    sizes = () if experts is None else numbers(experts, "experts", int)
    runs = load_all_results(finished_runs([local_run(str(each)) for each in directories], note))
    if not sizes:
        return runs
    from modnorm.analysis.smaller_ensembles import add_ensembles

    return [add_ensembles(run, sizes) for run in runs]
