"""`modnorm tune`: the paper's choice of a scale on development rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from modnorm.cli.console import percent, table
from modnorm.cli.experiment import SAME_COMMAND, carry_out, follow_to_end, interruptible
from modnorm.cli.options import (
    Json,
    Quiet,
    SpecFile,
    connect,
    numbers,
    read_unsettled_spec,
    settings,
)
from modnorm.cli.radius import GOES_ON, Out, conclude, held, home_of
from modnorm.client.development import check_development_rows
from modnorm.client.embedded import embedded_client
from modnorm.client.resumption import take_up_shared
from modnorm.client.tuning import (
    Trial,
    development_rows,
    grid_document,
    trial_spec,
)
from modnorm.errors import EvaluationError, InvalidInputError
from modnorm.radius.schema import GridDocument
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

Radii = Annotated[
    str, typer.Option("--radii", "--sigmas", metavar="R,R,...", help="Scales to try.")
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="S,S,...", help="Population seeds.")]
Heldout = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS",
        help="Development rows, none of them one of the spec's held-out rows; written as these: a "
        "source, all of it, or for instance '{source: dev.jsonl, offset: 200, limit: 100}'. "
        "Required.",
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

_PREFIX = "tune"


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

    Every scale is tried under every seed; ties go to the smaller scale. Started again, the same
    command goes on where it was broken off; a finer grid repeats no trial that it shares. The
    artifact, DIR/radius.json, can stand in a spec in the place of the radius.
    """
    spec = read_unsettled_spec(spec_file)
    rows = _development(spec, heldout)
    size = ensemble_size or max(spec.population.ensemble_sizes)
    specs = [
        trial_spec(spec, radius=radius, seed=seed, heldout=rows, ensemble_size=size)
        for radius in sorted(numbers(radii, "radii", float))
        for seed in numbers(seeds, "seeds", int)
    ]
    home = home_of(spec_file, _PREFIX, out)
    with held(home):
        trials = (
            _embedded(specs, home, quiet=quiet)
            if server is None
            else _in_lab(specs, server, quiet=quiet)
        )
        document = grid_document(specs[0], trials)
        conclude(document, _table(document), home, as_json=as_json)


def _development(spec: ExperimentSpec, heldout: str | None) -> DataSpec:
    """Return the development rows; the spec's held-out rows are kept for the test."""
    if heldout is None:
        raise InvalidInputError(
            "no development rows are given, and the spec's held-out rows are for the test",
            field="heldout",
            remedy="name other rows: --heldout '{source: dev.jsonl, limit: 100}'",
        )
    rows = development_rows(heldout)
    check_development_rows(spec, rows, folders=settings().split_folders)
    return rows


def _embedded(specs: Sequence[ExperimentSpec], out: Path, *, quiet: bool) -> list[Trial]:
    with (
        interruptible(GOES_ON),
        embedded_client(out, settings()) as client,
    ):
        return [_trial(spec, carry_out(client, spec, quiet=quiet)) for spec in specs]


def _in_lab(specs: Sequence[ExperimentSpec], server: str, *, quiet: bool) -> list[Trial]:
    """Submit all trials before any is waited for: the evaluators share them out."""
    with (
        connect(server) as client,
        interruptible("the trials go on in the lab; the same command finds them"),
    ):
        accepted = [take_up_shared(client, spec, _PREFIX) for spec in specs]
        return [
            _trial(spec, follow_to_end(client, experiment, quiet=quiet, go_on=SAME_COMMAND))
            for spec, experiment in zip(specs, accepted, strict=True)
        ]


def _trial(spec: ExperimentSpec, ended: experiments.Experiment) -> Trial:
    if not ended.ensembles:
        raise EvaluationError(f"{spec.name}: too few candidates are left for an ensemble")
    return Trial(
        radius=spec.method.radius,
        seed=spec.population.seed,
        metric=ended.ensembles[0].metric,
        provenance=ended.provenance,
    )


def _table(document: GridDocument) -> Table:
    rows = [
        (
            f"{one.radius:g}",
            percent(one.mean),
            "  ".join(percent(trial.metric) for trial in one.trials),
            "selected" if one.radius == document.radius else "",
        )
        for one in document.radii
    ]
    return table(("scale", "mean", "by seed", ""), rows)
