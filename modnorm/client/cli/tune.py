"""`modnorm tune`: the paper's choice of a scale on development rows."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from modnorm.client.cli.console import emit_json, percent, stderr, stdout, table
from modnorm.client.cli.experiment import carry_out, interruptible
from modnorm.client.cli.options import Json, Quiet, SpecFile, numbers, read_spec, settings
from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.rundir import RunDirectory, hold
from modnorm.client.tuning import (
    Scale,
    Trial,
    development_rows,
    select_scale,
    summarise,
    trial_spec,
)
from modnorm.spec import ExperimentSpec

Radii = Annotated[
    str, typer.Option("--radii", "--sigmas", metavar="R,R,...", help="Scales to try.")
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="S,S,...", help="Population seeds.")]
Heldout = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS",
        help="Development rows instead of the spec's held-out rows, written as there: a source, "
        "all of it, or for instance '{source: dev.jsonl, offset: 200, limit: 100}'.",
    ),
]
EnsembleSize = Annotated[
    int | None, typer.Option(metavar="K", help="Ensemble to compare [default: the largest].")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the trials.")]


def tune(  # noqa: PLR0913 - each argument is an option of the command
    spec_file: SpecFile,
    *,
    radii: Radii,
    out: Out,
    seeds: Seeds = "39,40,41",
    heldout: Heldout = None,
    ensemble_size: EnsembleSize = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose the radius (sigma for randopt) with the best mean ensemble on development rows.

    Every scale is tried under every seed; ties go to the smaller scale. Started again, the same
    command goes on where it was broken off; a finer grid repeats no trial that it shares.
    """
    spec = read_spec(spec_file)
    rows = None if heldout is None else development_rows(heldout)
    size = ensemble_size or max(spec.population.ensemble_sizes)
    specs = [
        trial_spec(spec, radius=radius, seed=seed, heldout=rows, ensemble_size=size)
        for radius in sorted(numbers(radii, "radii", float))
        for seed in numbers(seeds, "seeds", int)
    ]
    RunDirectory(out).check_holds_no_run()
    with (
        interruptible("stopped; the same command goes on from here"),
        hold(out),
        embedded_client(out, settings()) as client,
    ):
        trials = [_trial(client, trial, quiet=quiet) for trial in specs]
    _conclude(spec, specs[0], trials, out, as_json=as_json)


def _trial(client: ModnormClient, spec: ExperimentSpec, *, quiet: bool) -> Trial:
    ended = carry_out(client, spec, quiet=quiet)
    metric = ended.ensembles[0].metric
    return Trial(spec.method.radius, spec.population.seed, metric)


def _conclude(
    spec: ExperimentSpec,
    example: ExperimentSpec,
    trials: Sequence[Trial],
    out: Path,
    *,
    as_json: bool,
) -> None:
    scales = summarise(trials)
    chosen = select_scale(scales)
    document = {
        "method": spec.method.name,
        "population": spec.population.size,
        "ensemble_size": example.population.ensemble_sizes[0],
        "selection": example.task.selection.model_dump(mode="json"),
        "development": example.task.heldout.model_dump(mode="json"),
        "trials": [asdict(trial) for trial in trials],
        "scales": [asdict(scale) for scale in scales],
        "selected": chosen.radius,
    }
    (out / "tune.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        emit_json(document)
        return
    stdout().print(_table(scales, chosen))
    stderr().print(f"written to {out / 'tune.json'}", soft_wrap=True)


def _table(scales: Sequence[Scale], chosen: Scale) -> object:
    rows = [
        (
            f"{scale.radius:g}",
            percent(scale.mean),
            "  ".join(percent(metric) for metric in scale.metrics),
            "selected" if scale is chosen else "",
        )
        for scale in scales
    ]
    return table(("scale", "mean", "by seed", ""), rows)
