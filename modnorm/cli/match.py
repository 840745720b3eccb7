"""`modnorm match`: the radius that moves a model as far as isotropic noise does."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from modnorm.cli.console import stderr, table
from modnorm.cli.counts import Counts, counting
from modnorm.cli.experiment import interruptible
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
from modnorm.errors import ModnormError
from modnorm.radius.schema import MatchingDocument, MatchingSettings
from modnorm.spec import ExperimentSpec
from modnorm.spec.section import MAX_SEED
from modnorm.wire.radius_conversions import Matching

if TYPE_CHECKING:
    from modnorm.radius.matching import Step

Radii = Annotated[str, typer.Option("--radii", metavar="R,R,...", help="Radii to try.")]
Sigma = Annotated[float, typer.Option("--sigma", help="Isotropic noise to match.")]
Prompts = Annotated[
    int, typer.Option("--prompts", min=1, max=100_000, help="Selection rows that are read.")
]
Candidates = Annotated[
    int, typer.Option("--candidates", min=1, max=100, help="Candidates of each condition.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=MAX_SEED, help="Population seed of the candidates.")
]
MatchServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="Have this lab's calibrator measure, instead of this machine.",
    ),
]


def match(  # noqa: PLR0913 - each argument is an option of the command
    spec_file: SpecFile,
    *,
    out: Out = None,
    radii: Radii = "0.01,0.02,0.04,0.08,0.16,0.32,0.64",
    sigma: Sigma = 0.0005,
    prompts: Prompts = 64,
    candidates: Candidates = 25,
    seed: Seed = 42,
    server: MatchServer = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose the radius that changes the model's function as isotropic noise does.

    No answers are generated and no labels read: next-token distributions and hidden states are
    compared on the first selection rows' prompts, with the same candidate seeds for every radius.
    Model, task, method, profile, pool and noise are those of the spec. Started again, the same
    command goes on where it was broken off; other radii measure nothing twice. The artifact,
    DIR/radius.json, can stand in a spec in the place of the radius.
    """
    spec = read_unsettled_spec(spec_file)
    tried = numbers(radii, "radii", float)
    how = MatchingSettings(
        prompts=prompts,
        candidates=candidates,
        seed=seed,
        pool=spec.population.pool,
        noise=spec.population.noise,
    )
    wanted = Matching(tried, sigma, how)
    home = home_of(spec_file, "match", out)
    with interruptible(GOES_ON), held(home):
        document = (
            _measure(spec, wanted, home, quiet=quiet)
            if server is None
            else _in_lab(spec, wanted, server, quiet=quiet)
        )
        conclude(document, _table(document), home, as_json=as_json)


def _measure(
    spec: ExperimentSpec, wanted: Matching, out: Path, *, quiet: bool
) -> MatchingDocument:
    from modnorm.client.matching import make_plan
    from modnorm.radius.matching import match as measure

    with counting(stderr(), quiet=quiet) as counts:
        plan = make_plan(
            spec,
            radii=wanted.radii,
            sigma=wanted.sigma,
            settings=wanted.settings,
            folder=out,
            client=settings(),
            on_calibration=partial(counts.show, "calibrating"),
        )
        shown = _Measurements(counts, wanted.settings.candidates)
        return measure(plan, out / "measurements.jsonl", on_step=shown)


def _in_lab(
    spec: ExperimentSpec, wanted: Matching, server: str, *, quiet: bool
) -> MatchingDocument:
    from modnorm.client.lab_matching import LabStep, match_in_lab

    with connect(server) as client, counting(stderr(), quiet=quiet) as counts:

        def on_step(step: LabStep) -> None:
            counts.show(step.phase, step.done, step.total)

        document = match_in_lab(client, spec, wanted, on_step).document
    if not isinstance(document, MatchingDocument):
        raise ModnormError("the lab returned the artifact of a grid")
    return document


class _Measurements:
    """A count, and a line for each condition when all of its candidates are measured."""

    def __init__(self, counts: Counts, candidates: int) -> None:
        self._counts = counts
        self._candidates = candidates

    def __call__(self, step: "Step") -> None:
        self._counts.show("measuring", step.done, step.total)
        if step.done % self._candidates == 0:
            conditions = f"{step.done // self._candidates}/{step.total // self._candidates}"
            self._counts.tell(f"{conditions}  {step.method} {step.radius:g} measured")


def _table(document: MatchingDocument) -> Table:
    reference = document.reference
    rows = [
        ("isotropic", f"{reference.radius:g}", *_figures(reference.kl, reference.hidden), "", "")
    ]
    rows += [
        (
            document.method.name,
            f"{one.radius:g}",
            *_figures(one.kl, one.hidden),
            "-" if one.objective is None else f"{one.objective:.4f}",
            "selected" if one.radius == document.radius else "",
        )
        for one in document.radii
    ]
    return table(("method", "scale", "KL", "hidden", "J", ""), rows)


def _figures(kl: float, hidden: float) -> tuple[str, str]:
    return f"{kl:.3e}", f"{hidden:.4f}"
