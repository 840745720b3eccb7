"""`modnorm scales`: mass and scale of each physical tensor."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json, stdout, table
from modnorm.cli.options import Json
from modnorm.errors import InvalidInputError

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

MODULAR_NORM = "modular_norm"


def scales(  # noqa: PLR0913 - each argument is an option of the command
    *,
    radius: Radius,
    config: Config = None,
    model: Model = None,
    revision: Revision = None,
    profile: ProfileFile = None,
    method: Method = MODULAR_NORM,
    as_json: Json = False,
) -> None:
    """Print masses and scales of every physical tensor.

    From a config.json alone: masses and base scales of modular_norm (their scale is empty), or the
    map of a method that needs no weights. From a checkpoint, with its profile if the method
    needs one: the full scale map.
    """
    if (config is None) == (model is None):
        raise InvalidInputError("give either --config or --model", field="model")
    if not 0 < radius < float("inf"):
        raise InvalidInputError("must be greater than 0 and finite", field="radius")
    rows = (
        _config_rows(config, revision, profile, method, radius)
        if config is not None
        else _full_rows(model or "", revision, profile, method, radius)
    )
    if as_json:
        emit_json(rows)
        return
    headings = ("tensor", "group", "role", "mass", "base", "correction", "scale", "R/s")
    stdout().print(table(headings, ((name, *_cells(row)) for name, row in rows.items())))


def _config_rows(
    config: Path, revision: str | None, profile: Path | None, method: str, radius: float
) -> dict[str, dict[str, object]]:
    from modnorm.checkpoint.reference import load_config
    from modnorm.geometry.scales import base_scale_map, scale_table
    from modnorm.perturbation.methods import build_scale_map, needs_profile
    from modnorm.spec import Masses

    for name, given in (("revision", revision), ("profile", profile)):
        if given is not None:
            raise InvalidInputError(
                "belongs to a checkpoint, not to a config.json", field=name, remedy="give --model"
            )
    shape = load_config(config, field="config")
    if method == MODULAR_NORM:
        return scale_table(base_scale_map(shape, Masses()), radius)
    if needs_profile(method):
        raise InvalidInputError(
            f"{method} needs weights and a profile",
            field="method",
            remedy="give --model and --profile instead of --config",
        )
    scale_map = build_scale_map(
        method,
        config=shape,
        model_digest="",
        masses=Masses(),
        weights=None,
        sensitivities=None,
    )
    return scale_table(scale_map, radius)


def _full_rows(
    model: str, revision: str | None, profile: Path | None, method: str, radius: float
) -> dict[str, dict[str, object]]:
    from modnorm.calibration.profile import Profile
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.checkpoint.weights import CheckpointWeights
    from modnorm.geometry.scales import scale_table
    from modnorm.perturbation.methods import build_scale_map, needs_profile
    from modnorm.spec import Masses

    checkpoint = resolve_checkpoint(model, revision)
    found = Profile.load(profile) if profile else None
    if found is not None:
        found.check_matches(checkpoint)
    scale_map = build_scale_map(
        method,
        config=checkpoint.config,
        model_digest=checkpoint.digest,
        masses=Masses(),
        weights=CheckpointWeights(checkpoint) if needs_profile(method) else None,
        sensitivities=found.sensitivities if found else None,
    )
    return scale_table(scale_map, radius)


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    figures = ("mass", "base_scale", "correction", "scale", "radius_over_scale")
    return (str(row["group"]), str(row["role"]), *(_figure(row[name]) for name in figures))


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-"
