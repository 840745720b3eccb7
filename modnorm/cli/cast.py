"""`modnorm cast`: a model in another dtype, as a checkpoint."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json
from modnorm.cli.options import Json


class Dtype(StrEnum):
    """Dtypes of stored weights."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


Model = Annotated[str, typer.Option("--model", metavar="NAME|DIR", help="The model.")]
Revision = Annotated[str | None, typer.Option(metavar="COMMIT", help="Revision of the model.")]
Chosen = Annotated[Dtype, typer.Option("--dtype", help="Dtype of the weights.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the checkpoint goes.")]


def cast(
    *, model: Model, dtype: Chosen, out: Out, revision: Revision = None, as_json: Json = False
) -> None:
    """Write a model with its weights in another dtype.

    Perturbations and updates are rounded to this dtype. The paper runs MeZO and the ZO-Finetuner
    in float16.
    """
    import torch

    from modnorm.checkpoint.casting import cast_checkpoint
    from modnorm.checkpoint.reference import resolve_checkpoint

    checkpoint = resolve_checkpoint(model, revision)
    digest = cast_checkpoint(checkpoint, getattr(torch, dtype), out)
    if as_json:
        emit_json({"directory": str(out), "dtype": str(dtype), "weights_sha256": digest})
        return
    typer.echo(f"{dtype}  {digest[:16]}  {out}")
