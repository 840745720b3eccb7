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
    Path | None, typer.Option("--out", metavar="DIR", help="Directory [default: runs/SPEC].")
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

    Started again, the same command goes on where it was broken off, or where it failed for a cause
    that is mended by now, and repeats nothing that was finished. Several specs share one lab, one
    after another, and get a directory each inside DIR. All are read before any runs; one that
    fails stops no other, and then the exit code is 1.
    """
    from modnorm.cli.run_plan import check_runs, plan_runs
    from modnorm.client.rundir import hold

    home = out or Path("runs") / spec_files[0].stem
    runs = plan_runs(spec_files, home, seed)
    refused = check_runs(runs)
    with interruptible("stopped; the same command goes on from here"), hold(home):
        from modnorm.cli.run_work import carry_out_runs

        carry_out_runs(runs, home, refused=refused, quiet=quiet, as_json=as_json)
