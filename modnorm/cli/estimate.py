"""`modnorm plan`: the cost of a spec."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import amount, emit_json
from modnorm.cli.options import Json, Seed, SpecFile, read_spec, seeded

if TYPE_CHECKING:
    from modnorm.suites.cost_estimate import CostEstimate

Like = Annotated[
    Path | None,
    typer.Option(
        "--like",
        metavar="RUN",
        help="Finished run of the same model; its speed is used, also that of its trainings.",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="H100 or H200 [default: that of this machine]."),
]
Workers = Annotated[
    int, typer.Option("--workers", min=1, max=100_000, help="Workers that share the jobs.")
]


def plan(  # noqa: PLR0913 - each argument is an option of the command
    spec_file: SpecFile,
    *,
    like: Like = None,
    gpu: Gpu = None,
    workers: Workers = 1,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Estimate jobs, tokens and hours of a spec.

    Counts are upper bounds: early stop skips work, and experts of several ensembles answer once.
    Hours are rough unless --like names a finished run.
    """
    from modnorm.spec import located
    from modnorm.suites.cost_estimate import estimate_cost, rate_of_run
    from modnorm.suites.gpu_speed import require_known

    require_known(gpu)
    spec = seeded(read_spec(spec_file), seed)
    rate = rate_of_run(like) if like is not None else None
    with located(spec_file):
        estimate = estimate_cost(spec, rate, gpu=gpu)
    if as_json:
        emit_json({**asdict(estimate), "workers": workers})
        return
    _show(estimate, workers)
    if spec.distillation is not None:
        _line("trainings, at most", _training_time(estimate))


def _show(estimate: "CostEstimate", workers: int) -> None:
    rows = {
        "candidates": f"{estimate.candidates:,}",
        "jobs, at most": f"{estimate.jobs:,}",
        "evaluations, at most": f"{estimate.evaluations:,}",
        "tokens, at most": f"{estimate.tokens:,}",
        "time": "not known: the model is not on this machine; name a finished run with --like",
    }
    if estimate.phases is not None:
        shared = ("search", "vote")
        seconds = {
            name: each / (workers if name in shared else 1)
            for name, each in estimate.phases.items()
        }
        rows["time"] = (
            f"about {rough_time(sum(seconds.values()) / 3600)} with {amount(workers, 'worker')}, "
            f"from {estimate.basis}"
        )
        parts = (f"{name} {each:,.0f}" for name, each in seconds.items() if each)
        rows["seconds"] = ", ".join(parts)
    for name, figure in rows.items():
        _line(name, figure)


def _training_time(estimate: "CostEstimate") -> str:
    if estimate.training_hours is None:
        return "on top, not known: name a finished distillation with --like"
    return f"about {rough_time(estimate.training_hours)} on top, from {estimate.basis}"


def _line(name: str, figure: str) -> None:
    typer.echo(f"{name:22}{figure}")


def rough_time(hours: float) -> str:
    """Return a rough time in the unit that suits it."""
    minutes = 60 * hours
    if minutes >= 120:
        return f"{hours:,.1f} hours"
    if minutes >= 1.5:
        return f"{minutes:.0f} minutes"
    return "a minute" if minutes >= 0.75 else f"{max(2, 60 * minutes):.0f} seconds"
