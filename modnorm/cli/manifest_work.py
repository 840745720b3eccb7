"""The work of `modnorm export --manifest` and `modnorm rebuild`."""

import json
from pathlib import Path

import typer

from modnorm.cli.console import emit_json
from modnorm.cli.export_work import warn_of_tokenizer
from modnorm.cli.options import check_output_file
from modnorm.cli.predict import EnsembleChoice
from modnorm.cli.runs import opened_run
from modnorm.files import write_file
from modnorm.prediction.base_model import BasePlace
from modnorm.prediction.ensemble_definition import define_ensemble
from modnorm.prediction.expert_cards import check_example
from modnorm.prediction.manifest import encode_manifest, make_manifest, read_ensemble_manifest
from modnorm.prediction.rebuilding import rebuild


def write_manifest(choice: EnsembleChoice, place: BasePlace, out: Path, *, as_json: bool) -> None:
    """Write the manifest of an ensemble.

    Args:
        choice: The ensemble; its source is a run.
        place: Where the base is.
        out: The file.
        as_json: Print a document.

    Raises:
        InvalidInputError: the run trained one model.
    """
    check_output_file(out)
    with opened_run(choice.source, choice.server) as run:
        ensemble = define_ensemble(run, choice.population, choice.size)
        example = json.loads(run.rows("heldout")[0])
    base = place.find(ensemble.model, ensemble.model_digest)
    content = encode_manifest(make_manifest(ensemble, base, example))
    write_file(out, content)
    size = f"N={ensemble.population} K={ensemble.ensemble_size}"
    if as_json:
        emit_json({"file": str(out), "bytes": len(content), "experts": list(ensemble.indices)})
    else:
        typer.echo(f"{size}  {len(content):,} bytes  {out}")


def rebuild_manifest(manifest: Path, place: BasePlace, out: Path, *, as_json: bool) -> None:
    """Write and verify the checkpoints of a manifest."""
    read = read_ensemble_manifest(manifest)
    base = place.find(read.ensemble.model, read.ensemble.model_digest)
    finding = check_example(read, base)
    names = rebuild(read, base, out, finding)
    warn_of_tokenizer(finding)
    if as_json:
        digests = dict(zip(names, read.weights_sha256, strict=True))
        emit_json({"directory": str(out), "weights_sha256": digests})
        return
    for name, digest in zip(names, read.weights_sha256, strict=True):
        typer.echo(f"{out / name}  {digest[:16]}  verified")
