"""`modnorm tune`: the paper's choice of a radius on development rows."""

from typing import Annotated

import typer

from modnorm.cli.options import Json, Quiet, SpecFile, check_spec, numbers, read_unsettled_spec
from modnorm.cli.radius import Out, held, home_of

Radii = Annotated[
    str, typer.Option("--radii", "--sigmas", metavar="R,R,...", help="Scales to try.")
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="S,S,...", help="Population seeds.")]
Heldout = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS",
        help="Development rows, required: a source, or for instance '{source: dev.jsonl, "
        "offset: 200, limit: 100}'. No held-out row of the spec may be among them.",
    ),
]
EnsembleSize = Annotated[
    int | None,
    typer.Option(metavar="K", min=1, help="Ensemble to compare [default: the largest]."),
]
TuneServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="Run the trials in this lab, all at once, instead of in this process.",
    ),
]


def tune(  # noqa: PLR0913 - each argument is an option of the command
    spec_file: SpecFile,
    *,
    radii: Radii,
    out: Out = None,
    seeds: Seeds = "39,40,41",
    heldout: Heldout = None,
    ensemble_size: EnsembleSize = None,
    server: TuneServer = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose the radius (sigma for randopt) with the best mean ensemble on development rows.

    Every radius is tried with every seed; ties go to the smaller radius. The same command resumes
    an interrupted one; a finer grid reuses the trials of a coarser one. A spec may name the
    artifact, DIR/radius.json, instead of a radius.
    """
    from modnorm.cli.tune_plan import naming_options, plan_trials

    spec = read_unsettled_spec(spec_file)
    with naming_options():
        specs = plan_trials(
            spec,
            radii=sorted(numbers(radii, "radii", float)),
            seeds=numbers(seeds, "seeds", int),
            heldout=heldout,
            ensemble_size=ensemble_size,
        )
        if server is None:
            check_spec(specs[0], spec_file)
        home = home_of(spec_file, "tune", out)
        with held(home):
            from modnorm.cli.tune_work import try_all

            try_all(specs, home, server, quiet=quiet, as_json=as_json)
