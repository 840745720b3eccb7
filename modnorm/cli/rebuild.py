"""`modnorm rebuild`: the checkpoints of an ensemble, from its manifest."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import BaseModel, BaseRevision, Json

Manifest = Annotated[
    Path, typer.Argument(metavar="MANIFEST", help="File of `modnorm export --manifest`.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the checkpoints go.")]


def rebuild(
    manifest: Manifest,
    *,
    out: Out,
    model: BaseModel = None,
    revision: BaseRevision = None,
    as_json: Json = False,
) -> None:
    """Write and verify the checkpoints of an exported ensemble.

    Each expert gets a directory, best first. Its weights must have the SHA-256 that the manifest
    states.
    """
    from modnorm.cli.manifest_work import rebuild_manifest
    from modnorm.prediction.base_model import BasePlace

    rebuild_manifest(manifest, BasePlace(model, revision), out, as_json=as_json)
