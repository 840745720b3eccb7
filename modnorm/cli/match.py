"""`modnorm match`: choice of a radius by functional matching, without labels."""

from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.interruption import interruptible
from modnorm.cli.options import Json, Quiet, SpecFile, numbers, read_unsettled_spec, settings
from modnorm.cli.radius import RESUMES, Out, held, home_of
from modnorm.spec_limits import MAX_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modnorm.spec import ExperimentSpec

Radii = Annotated[str, typer.Option("--radii", metavar="R,R,...", help="Radii to try.")]
Sigma = Annotated[float, typer.Option("--sigma", help="Isotropic noise to match.")]
Prompts = Annotated[
    int, typer.Option("--prompts", min=1, max=100_000, help="Number of selection rows.")
]
Candidates = Annotated[
    int, typer.Option("--candidates", min=1, max=100, help="Candidates for each radius.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=MAX_SEED, help="Population seed of the candidates.")
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose the radius that changes the model as much as isotropic noise does.

    No answers are generated and no labels read. Next-token distributions and hidden states are
    compared on the prompts of the first selection rows. Every radius has the same candidate seeds.
    Model, task, method, profile, pool and noise are those of the spec. The same command resumes
    an interrupted one; with other radii it repeats no measurement. A spec may name the artifact,
    DIR/radius.json, instead of a radius.
    """
    from modnorm.radius.artifact_schema import MatchingSettings
    from modnorm.spec import located

    spec = read_unsettled_spec(spec_file)
    tried = numbers(radii, "radii", float)
    how = MatchingSettings(
        prompts=prompts,
        candidates=candidates,
        seed=seed,
        pool=spec.population.pool,
        noise=spec.population.noise,
    )
    with located(spec_file):
        _check(spec, tried, sigma, prompts)
    home = home_of(spec_file, "match", out)
    with interruptible(RESUMES), held(home):
        from modnorm.cli.match_work import match_all

        match_all(spec, tried, sigma, how, home, quiet=quiet, as_json=as_json)


def _check(spec: "ExperimentSpec", radii: "Sequence[float]", sigma: float, prompts: int) -> None:
    """Check a matching on this machine, before a model is loaded.

    Raises:
        InvalidInputError: names the field or the option at fault.
        PreconditionError: the rows are not public and not on this machine.
    """
    from modnorm.radius.matching_checks import check_count, check_method
    from modnorm.spec_checks import check_search_locally

    check_method(spec.method, radii, sigma)
    rows = check_search_locally(spec, folders=settings().split_folders)
    if rows is not None:
        check_count(rows, prompts)
