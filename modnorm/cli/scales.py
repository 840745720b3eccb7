"""`modnorm scales`: mass and scale of each physical tensor."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from modnorm.cli.console import emit_json, stdout, table
from modnorm.cli.options import Json
from modnorm.errors import InvalidInputError
from modnorm.spec_limits import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modnorm.geometry.scale_map import ScaleMap

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A config.json, which gives base scales only."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME|DIR", help="A checkpoint, which gives the full scale map."
    ),
]
Revision = Annotated[str | None, typer.Option(metavar="COMMIT", help="Revision of the model.")]
ProfileFile = Annotated[
    Path | None, typer.Option("--profile", metavar="FILE", help="Profile of the model.")
]
Radius = Annotated[float, typer.Option("--radius", help="R, or sigma for randopt.")]
Method = Annotated[str, typer.Option("--method", help="Name of the method.")]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        metavar="RANK",
        min=1,
        max=MAX_RANK,
        help="Rank of the noise [default: full rank].",
    ),
]
Modules = Literal["all", "all-linear"]
TargetModules = Annotated[
    Modules,
    typer.Option("--target-modules", help="The matrices that noise of a rank perturbs."),
]

MODULAR_NORM = "modular_norm"


@dataclass(frozen=True, slots=True)
class _Noise:
    """The noise of a method, as `MethodSpec` has it."""

    method: str
    rank: int | None
    target_modules: Modules


def scales(  # noqa: PLR0913 - each argument is an option of the command
    *,
    radius: Radius,
    config: Config = None,
    model: Model = None,
    revision: Revision = None,
    profile: ProfileFile = None,
    method: Method = MODULAR_NORM,
    rank: Rank = None,
    target_modules: TargetModules = "all",
    as_json: Json = False,
) -> None:
    """Print masses and scales of every physical tensor.

    From a config.json alone: masses and base scales of modular_norm (their scale is empty), or the
    map of a method that needs no weights. From a checkpoint, with its profile if the method
    needs one: the full scale map. With --rank: tensors without low-rank noise have no scale.
    """
    if (config is None) == (model is None):
        raise InvalidInputError("give either --config or --model", field="model")
    if not 0 < radius < float("inf"):
        raise InvalidInputError("must be greater than 0 and finite", field="radius")
    if rank is None and target_modules != "all":
        raise InvalidInputError("needs low-rank noise; give --rank", field="target-modules")
    from modnorm.geometry.scales import scale_table

    noise = _Noise(method, rank, target_modules)
    scale_map = (
        _config_map(config, revision, profile, noise)
        if config is not None
        else _full_map(model or "", revision, profile, noise)
    )
    rows = scale_table(scale_map, radius)
    if as_json:
        emit_json(rows)
        return
    headings = ("tensor", "group", "role", "mass", "base", "correction", "scale", "R/s")
    stdout().print(table(headings, ((name, *_cells(row)) for name, row in rows.items())))


def _config_map(
    config: Path, revision: str | None, profile: Path | None, noise: _Noise
) -> "ScaleMap":
    from modnorm.checkpoint.reference import load_config
    from modnorm.perturbation.methods import needs_profile, uncorrected_scale_map

    for name, given in (("revision", revision), ("profile", profile)):
        if given is not None:
            raise InvalidInputError(
                "belongs to a checkpoint, not to a config.json", field=name, remedy="give --model"
            )
    shape = load_config(config, field="config")
    if noise.method == MODULAR_NORM:
        return _base_map(shape, noise)
    if needs_profile(noise.method):
        raise InvalidInputError(
            f"{noise.method} needs weights and a profile",
            field="method",
            remedy="give --model and --profile instead of --config",
        )
    return uncorrected_scale_map(
        noise.method, shape, rank=noise.rank, target_modules=noise.target_modules
    )


def _base_map(config: "Mapping[str, object]", noise: _Noise) -> "ScaleMap":
    from modnorm.geometry.controls import matrix_scales
    from modnorm.geometry.scales import base_scale_map
    from modnorm.spec import Masses

    whole = base_scale_map(config, Masses())
    if noise.rank is None:
        return whole
    return replace(whole, tensors=matrix_scales(whole.tensors, noise.target_modules))


def _full_map(model: str, revision: str | None, profile: Path | None, noise: _Noise) -> "ScaleMap":
    from modnorm.calibration.profile import Profile
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.perturbation.methods import build_scale_map

    checkpoint = resolve_checkpoint(model, revision)
    found = Profile.load(profile) if profile else None
    if found is not None:
        found.check_matches(checkpoint)
    return build_scale_map(
        noise.method,
        checkpoint,
        sensitivities=found.sensitivities if found else None,
        rank=noise.rank,
        target_modules=noise.target_modules,
    )


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    figures = ("mass", "base_scale", "correction", "scale", "radius_over_scale")
    return (str(row["group"]), str(row["role"]), *(_figure(row[name]) for name in figures))


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-"
