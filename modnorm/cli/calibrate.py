"""`modnorm calibrate`: a profile without any service."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json, stderr
from modnorm.cli.interruption import interruptible
from modnorm.cli.options import Json, Quiet
from modnorm.cli.options import settings as client_settings
from modnorm.cli.output_file import check_output_file
from modnorm.files import write_file

if TYPE_CHECKING:
    from modnorm.calibration.profile import Profile
    from modnorm.spec import CalibrationSpec, DataSpec

Model = Annotated[str, typer.Option("--model", metavar="NAME|DIR", help="The model.")]
Revision = Annotated[str | None, typer.Option(metavar="COMMIT", help="Revision of the model.")]
TaskName = Annotated[str, typer.Option("--task", help="Task whose prompts are used.")]
Data = Annotated[str, typer.Option("--data", metavar="SOURCE", help="Rows of the task.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the profile goes.")]
Examples = Annotated[int, typer.Option(min=1, help="Number of prompts.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the estimator.")]
Maps = Annotated[
    str,
    typer.Option(help="Functional maps: default, or published (they differ for Gemma 3)."),
]


def calibrate(  # noqa: PLR0913 - each argument is an option of the command
    *,
    model: Model,
    task: TaskName,
    data: Data,
    out: Out,
    revision: Revision = None,
    examples: Examples = 64,
    seed: Seed = 1729,
    maps: Maps = "default",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Calibrate a model's sensitivities and write the profile.

    An interrupted calibration leaves nothing. Fewer `--examples` finish earlier.
    """
    from modnorm.spec import CalibrationSpec, DataSpec, parse_section

    settings = parse_section(
        CalibrationSpec, {"examples": examples, "seed": seed, "maps": maps}, field="calibration"
    )
    rows = parse_section(DataSpec, {"source": data}, field="data")
    check_output_file(out, Path(data))
    with interruptible("stopped; nothing was written, the same command starts again"):
        profile = _measure(model, revision, task, rows, settings, quiet=quiet)
    write_file(out, profile.to_json().encode())
    if as_json:
        emit_json(
            {"digest": profile.digest, "file": str(out), "model_digest": profile.model_digest}
        )
        return
    typer.echo(f"{profile.fingerprint}  {out}")


def _measure(  # noqa: PLR0913 - the inputs of a profile
    model: str,
    revision: str | None,
    task_name: str,
    data: "DataSpec",
    settings: "CalibrationSpec",
    *,
    quiet: bool,
) -> "Profile":
    from modnorm.calibration.calibrate import calibrate as measure
    from modnorm.checkpoint.prompts import PromptEncoder
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.cli.counts import counting
    from modnorm.tasks import get_task
    from modnorm.tasks.row_loading import load_rows
    from modnorm.tasks.task_errors import render_prompts

    task = get_task(task_name)
    checkpoint = resolve_checkpoint(model, revision)
    folders = client_settings().split_folders
    rows = load_rows(task, data, field="data", folders=folders)[: settings.examples]
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(messages) for messages in render_prompts(task, rows, "row")]
    with counting(stderr(), quiet=quiet) as counts:
        show = partial(counts.show, f"{model}: calibrating")
        show(0, len(prompts))
        return measure(checkpoint, prompts, settings, task=task.name, on_progress=show)
