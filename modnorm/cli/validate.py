"""`modnorm validate`: all checks of specs, and no run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json
from modnorm.cli.escaping import visible
from modnorm.cli.options import Json, check_model, check_spec, read_spec, settings
from modnorm.errors import InvalidInputError, ModnormError, UnavailableError

if TYPE_CHECKING:
    from modnorm.spec import ExperimentSpec

SpecFiles = Annotated[
    list[Path], typer.Argument(metavar="SPEC...", help="Experiment specs, YAML.")
]


def validate(spec_files: SpecFiles, *, as_json: Json = False) -> None:
    """Check specs without running them.

    Checks syntax, fields, names, rows, profile and model as far as they are on this machine, as
    `modnorm run` does before it starts. It asks the Hugging Face Hub whether it has the model;
    nothing is downloaded and no weights are read. Names the inputs that only a run can check.
    Every file is checked; exit code 2 if one is refused.
    """
    checked = [_check(path) for path in spec_files]
    if as_json:
        emit_json(checked)
    else:
        for entry in checked:
            _show(entry)
    if not all(entry["valid"] for entry in checked):
        raise typer.Exit(2)


def _check(path: Path) -> dict[str, object]:
    """Return the entry of a spec: whether it is valid, its fault, and checks left to the run."""
    from modnorm.spec_checks import count_overlap

    try:
        spec = read_spec(path)
        check_spec(spec, path)
        obstacles = _obstacles(spec)
        overlap = count_overlap(spec, folders=settings().split_folders)
    except ModnormError as error:
        fault = {"message": error.message, "field": error.field, "remedy": error.remedy}
        return {"file": str(path), "valid": False, "error": str(error), **fault}
    return {
        "file": str(path),
        "valid": True,
        "unchecked": _unchecked(spec),
        "obstacles": obstacles,
        "overlap": overlap,
    }


def _obstacles(spec: "ExperimentSpec") -> list[str]:
    """Return why a run on this machine would fail through no fault of the spec.

    Raises:
        InvalidInputError: the Hugging Face Hub does not have the model.
    """
    found = []
    try:
        check_model(spec)
    except UnavailableError as error:
        found.append(error.message)
    try:
        settings().check_cache()
    except InvalidInputError as error:
        found.append(error.reason)
    return found


def _unchecked(spec: "ExperimentSpec") -> list[str]:
    """Return the inputs of a spec that are not on this machine."""
    from modnorm.checkpoint.reference import find_local_checkpoint
    from modnorm.spec_checks import development_of
    from modnorm.tasks.sources import needs_hub

    sources = {"task.selection": spec.task.selection, "task.heldout": spec.task.heldout}
    place, chosen_on = development_of(spec)
    if chosen_on is not None:
        sources[place] = chosen_on
    if spec.distillation is not None:
        sources["distillation.rows"] = spec.distillation.rows
    folders = settings().split_folders
    absent = [
        f"{field} ({rows.source})"
        for field, rows in sources.items()
        if needs_hub(rows.source, folders, field=field)
    ]
    if find_local_checkpoint(spec.model.name, spec.model.revision) is None:
        absent.insert(0, f"model ({spec.model.name})")
    return absent


def _show(entry: dict[str, object]) -> None:
    if not entry["valid"]:
        typer.echo(visible(f"error: {entry['error']}"), err=True)
        return
    absent = entry["unchecked"]
    names = ", ".join(map(str, absent)) if isinstance(absent, list) else ""
    rest = f"; not on this machine, so the run downloads and checks: {names}" if names else ""
    typer.echo(visible(f"{entry['file']}: valid{rest}"))
    obstacles = entry["obstacles"]
    for obstacle in obstacles if isinstance(obstacles, list) else ():
        typer.echo(visible(f"note: {obstacle}; a run on this machine would fail"), err=True)
    if entry["overlap"]:
        note = f"note: {entry['overlap']} held-out rows have the prompts of selection rows"
        typer.echo(f"{note}: they do not test the selection", err=True)
