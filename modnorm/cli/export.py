"""`modnorm export`: a trained model or a candidate of a run, as a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import Json, Run, RunServer

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the checkpoint goes.")]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        metavar="K",
        min=1,
        help="Rank of the candidate in the whole population; 1 is the best.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|DIR",
        help="The base on this machine [default: the model in the spec of RUN].",
    ),
]
Revision = Annotated[str | None, typer.Option(metavar="COMMIT", help="Revision of the base.")]


def export(  # noqa: PLR0913 - each argument is an option of the command
    run: Run,
    *,
    out: Out,
    rank: Rank = None,
    server: RunServer = None,
    model: Model = None,
    revision: Revision = None,
    as_json: Json = False,
) -> None:
    """Write a candidate, or the model that es, mezo or zo_finetuner trained, as a checkpoint.

    The weights are rebuilt bit for bit from the base and the stored lineage or descriptor. The
    base is read on this machine; a base with another digest than the run's is refused.
    """
    from modnorm.cli.export_work import write_model
    from modnorm.client.base_model import BasePlace

    write_model(run, server, BasePlace(model, revision), out, rank, as_json=as_json)
