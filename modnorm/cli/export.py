"""`modnorm export`: a checkpoint, a manifest or adapters of a finished run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.options import (
    BaseModel,
    BaseRevision,
    Json,
    Population,
    RunServer,
    Size,
    refuse_given,
)
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from modnorm.cli.predict import EnsembleChoice
    from modnorm.prediction.base_model import BasePlace

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Directory of a run, or id in a lab; for --adapters also a manifest."
    ),
]
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
Adapters = Annotated[
    bool,
    typer.Option(
        "--adapters",
        help="Write the experts of a low-rank ensemble as LoRA adapters, instead of a checkpoint.",
    ),
]


def export(
    run: Run,
    *,
    out: Out,
    rank: Rank = None,
    manifest: Manifest = False,
    adapters: Adapters = False,
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
    With --manifest or --adapters, --n and --k name the ensemble. `modnorm rebuild` makes the
    checkpoints of a manifest. Adapters have PEFT's format, and vLLM serves them on one base.
    """
    ensemble = {"n": population, "k": size}
    _require_one_form(ensemble, manifest=manifest, adapters=adapters)

    from modnorm.cli.export_work import write_model
    from modnorm.cli.predict import EnsembleChoice
    from modnorm.prediction.base_model import BasePlace

    place = BasePlace(model, revision)
    if manifest or adapters:
        refuse_given(
            {"rank": rank}, "manifest and adapters are of an ensemble", "give --n and --k instead"
        )
        choice = EnsembleChoice(run, server, population, size)
        _write_ensemble(choice, place, out, manifest=manifest, as_json=as_json)
    else:
        write_model(run, server, place, out, rank, as_json=as_json)


def _write_ensemble(
    choice: "EnsembleChoice", place: "BasePlace", out: Path, *, manifest: bool, as_json: bool
) -> None:
    from modnorm.cli.adapter_work import write_adapters
    from modnorm.cli.manifest_work import write_manifest

    write = write_manifest if manifest else write_adapters
    write(choice, place, out, as_json=as_json)


def _require_one_form(ensemble: Mapping[str, object], *, manifest: bool, adapters: bool) -> None:
    """Refuse options of different forms of an export.

    Raises:
        InvalidInputError: two forms are named, or an ensemble for a form that takes none.
    """
    if manifest and adapters:
        raise InvalidInputError(
            "--manifest writes a file and --adapters a directory",
            field="adapters",
            remedy="give one of the two",
        )
    if not (manifest or adapters):
        refuse_given(
            ensemble,
            "this writes one model, and the option names an ensemble",
            "give --manifest or --adapters for an ensemble, --rank for a candidate",
        )
