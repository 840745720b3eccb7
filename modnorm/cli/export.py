"""`modnorm export`: a trained model or a candidate of a run, as a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import BaseModel, BaseRevision, Json, Population, Run, RunServer, Size

Out = Annotated[Path, typer.Option("--out", metavar="PATH", help="Where the result goes.")]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        metavar="K",
        min=1,
        help="Rank of the candidate in the whole population; 1 is the best.",
    ),
]
Manifest = Annotated[
    bool,
    typer.Option(
        "--manifest",
        help="Write the file that rebuilds an ensemble anywhere, instead of a checkpoint.",
    ),
]


def export(  # noqa: PLR0913 - each argument is an option of the command
    run: Run,
    *,
    out: Out,
    rank: Rank = None,
    manifest: Manifest = False,
    population: Population = None,
    size: Size = None,
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
    as_json: Json = False,
) -> None:
    """Write a candidate, or the model that es, mezo or zo_finetuner trained, as a checkpoint.

    The weights are rebuilt bit for bit from the base and the stored lineage or descriptor. The
    base is read on this machine; a base with another digest than the run's is refused.
    With --manifest, --n and --k name the ensemble; `modnorm rebuild` makes its checkpoints.
    """
    from modnorm.cli.export_work import write_model
    from modnorm.prediction.base_model import BasePlace

    place = BasePlace(model, revision)
    if manifest:
        from modnorm.cli.manifest_work import write_manifest
        from modnorm.cli.predict_work import Asked

        write_manifest(Asked(run, server, population, size), rank, place, out, as_json=as_json)
        return
    write_model(run, server, place, out, rank, as_json=as_json)
