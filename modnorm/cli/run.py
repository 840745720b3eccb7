"""`modnorm run`: experiments from spec to report, with a lab inside this process."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.interruption import interruptible
from modnorm.cli.options import Json, Quiet, Seed

SpecFiles = Annotated[
    list[Path], typer.Argument(metavar="SPEC...", help="Experiment specs, YAML.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Directory [default: runs/SPEC, of the first SPEC]."
    ),
]


def run(
    spec_files: SpecFiles,
    *,
    out: Out = None,
    seed: Seed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run experiments in this process and write results and a report.

    The same command resumes an interrupted run, and a failed one once its cause is fixed. It
    repeats nothing that is finished. Several specs run one after another in one lab, each with a
    directory inside DIR. All are checked before the first starts. If one fails, the others still
    run, and the exit code is 1.
    """
    from modnorm.cli.run_plan import check_runs, plan_runs
    from modnorm.client.rundir import hold

    home = out or Path("runs") / spec_files[0].stem
    runs = plan_runs(spec_files, home, seed)
    refused = check_runs(runs)
    with interruptible("stopped; the same command resumes here"), hold(home):
        from modnorm.cli.run_work import RunOptions, run_all

        options = RunOptions(quiet, as_json)
        run_all(runs, home, refused=refused, options=options)
