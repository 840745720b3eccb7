"""The output of `modnorm show` for a directory: one run, or the runs inside it."""

from pathlib import Path

from modnorm.cli.console import emit_json, stdout
from modnorm.cli.results import read_results, results_table
from modnorm.client.rundir import RunDirectory, spec_file
from modnorm.errors import InvalidInputError


def show_directory(directory: Path, *, as_json: bool) -> None:
    """Print the results of a run directory, or of each run directory inside it.

    Raises:
        InvalidInputError: it is not a run directory, and holds none.
    """
    runs = _runs_of(directory)
    finished = [run for run in runs if (run / "results.json").is_file()]
    if as_json:
        documents = [read_results(RunDirectory(run)) for run in finished]
        emit_json(documents[0] if runs == [directory] and documents else documents)
        return
    console = stdout()
    for run in runs:
        if run in finished:
            console.print(f"{run}  finished", soft_wrap=True)
            console.print(results_table(read_results(RunDirectory(run))))
        else:
            console.print(
                f"{run}  not finished; the command that started it resumes it", soft_wrap=True
            )


def _runs_of(directory: Path) -> list[Path]:
    if spec_file(directory).is_file():
        return [directory]
    inside = sorted(child for child in directory.iterdir() if spec_file(child).is_file())
    if not inside:
        raise InvalidInputError(
            f"{directory} is not a run directory",
            field="run",
            remedy="name a directory that `modnorm run` wrote, or the id of an experiment",
        )
    return inside
