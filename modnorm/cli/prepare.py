"""`modnorm prepare`: the generator of a ZO-Finetuner, without any service."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json, stderr
from modnorm.cli.interruption import interruptible
from modnorm.cli.options import Json, Quiet, settings
from modnorm.cli.output_file import check_output_file
from modnorm.files import write_file
from modnorm.spec_limits import MAX_TWO_SIDED_SEED

Model = Annotated[str, typer.Option("--model", metavar="NAME|DIR", help="The model.")]
Revision = Annotated[str | None, typer.Option(metavar="COMMIT", help="Revision of the model.")]
Data = Annotated[
    str, typer.Option("--data", metavar="SOURCE", help="Countdown rows with a column solution.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of rows.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the generator goes.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the examples.")]
Seed = Annotated[
    int, typer.Option(min=0, max=MAX_TWO_SIDED_SEED, help="Seed of weights, order and noise.")
]


def prepare(  # noqa: PLR0913 - each argument is an option of the command
    *,
    model: Model,
    data: Data,
    out: Out,
    revision: Revision = None,
    limit: Limit = None,
    epochs: Epochs = 15,
    seed: Seed = 38,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Prepare the generator of zo_finetuner on solved puzzles, with gradients, once per model.

    An interrupted preparation leaves nothing. Fewer `--epochs` finish earlier.
    """
    from modnorm.spec import DataSpec, parse_section

    rows = parse_section(DataSpec, {"source": data, "limit": limit}, field="data")
    check_output_file(out, Path(data))
    from modnorm.baselines.preparation import PreparationSettings
    from modnorm.cli.counts import counting
    from modnorm.client.preparing import prepare_generator

    chosen = replace(PreparationSettings(), epochs=epochs, seed=seed)
    with (
        interruptible("stopped; nothing was written, the same command starts again"),
        counting(stderr(), quiet=quiet) as counts,
    ):
        generator = prepare_generator(
            model,
            revision,
            rows,
            chosen,
            on_batch=partial(counts.show, f"{model}: preparing"),
            folders=settings().split_folders,
        )
    write_file(out, generator.text.encode())
    if as_json:
        emit_json({"digest": generator.digest, "file": str(out)})
        return
    typer.echo(f"{generator.digest[:16]}  {out}")
