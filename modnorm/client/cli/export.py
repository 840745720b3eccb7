"""`modnorm export`: the model that an iterative run trained, as a checkpoint."""

import json
from pathlib import Path
from typing import Annotated

import typer

from modnorm.client.cli.console import emit_json
from modnorm.client.cli.options import Json
from modnorm.client.rundir import lineage_file, spec_file
from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec

Run = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a finished run.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the checkpoint goes.")]


def export(directory: Run, *, out: Out, as_json: Json = False) -> None:
    """Write the model that es, mezo or zo_finetuner reported, for any tool that reads models.

    The weights are made again from the base and the lineage of the run, bit for bit those that
    answered the held-out rows.
    """
    from modnorm.baselines.export import export_state
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.perturbation.lineage import Lineage

    try:
        text = lineage_file(directory).read_text(encoding="utf-8")
        spec = parse_spec(json.loads(spec_file(directory).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{directory} is no finished run of an iterative method: {error}",
            field="run",
            remedy="name the directory that `modnorm run` wrote for es, mezo or zo_finetuner",
        ) from error
    lineage = Lineage.from_json(text)
    checkpoint = resolve_checkpoint(spec.model.name, spec.model.revision)
    digest = export_state(checkpoint, lineage, out)
    if as_json:
        emit_json({"directory": str(out), "updates": len(lineage.steps), "weights_sha256": digest})
        return
    typer.echo(f"{len(lineage.steps)} updates  {digest[:16]}  {out}")
