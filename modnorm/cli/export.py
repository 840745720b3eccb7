"""`modnorm export` and `rebuild`: checkpoints, manifests and adapters of finished runs."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import STARTS_AGAIN, echo, emit, emit_json, interruptible
from modnorm.cli.options import (
    BaseModel,
    BaseRevision,
    Population,
    RunServer,
    Size,
    arg,
    check_output_file,
    open_run,
    opt,
    refuse_given,
)
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from modnorm.checkpoint.reference import Checkpoint
    from modnorm.prediction.ensemble_definition import EnsembleDefinition
    from modnorm.prediction.predictor import BasePlace


@interruptible(STARTS_AGAIN)
def export(
    run: Annotated[
        str, arg("RUN", "Directory of a run, or id in a lab; for --adapters also a manifest.")
    ],
    *,
    out: Annotated[Path, opt("--out PATH", "Where the result goes.")],
    rank: Annotated[
        int | None,
        opt("--rank K", "Rank of the candidate in the whole population; 1 is the best.", min=1),
    ] = None,
    manifest: Annotated[
        bool,
        opt(
            "--manifest",
            "Write the file that rebuilds an ensemble anywhere, instead of a checkpoint.",
        ),
    ] = False,
    adapters: Annotated[
        bool,
        opt(
            "--adapters",
            "Write the experts of a low-rank ensemble as LoRA adapters, instead of a checkpoint.",
        ),
    ] = False,
    population: Population = None,
    size: Size = None,
    server: RunServer = None,
    model: BaseModel = None,
    revision: BaseRevision = None,
) -> None:
    """Write a candidate or a trained model as a checkpoint.

    Without --rank it is the model that es, mezo or zo_finetuner trained.
    The weights are rebuilt bit for bit from the base and the stored lineage or descriptor. The
    base is read on this machine; a base with another digest than the run's is refused.
    With --manifest or --adapters, --n and --k name the ensemble. `modnorm rebuild` makes the
    checkpoints of a manifest. Adapters have PEFT's format, and vLLM serves them on one base.
    """
    if manifest and adapters:
        raise InvalidInputError(
            "--manifest writes a file and --adapters a directory",
            field="adapters",
            remedy="give one of the two",
        )
    from modnorm.analysis.run_files import DESCRIPTORS
    from modnorm.checkpoint.writing import require_new
    from modnorm.cli.predict import open_ensemble
    from modnorm.client import model_export
    from modnorm.perturbation.exports import export_candidate, export_state, require_adapters
    from modnorm.prediction.ensemble_definition import define_ensemble
    from modnorm.prediction.predictor import BasePlace

    place = BasePlace(model, revision)
    if manifest or adapters:
        refuse_given(
            {"rank": rank}, "manifest and adapters are of an ensemble", "give --n and --k instead"
        )
        if manifest:
            check_output_file(out)
            searched = open_run(run, server, tables=[DESCRIPTORS])
            ensemble = define_ensemble(searched, population, size)
            _write_manifest(ensemble, place, searched.rows("heldout")[0], out)
            return
        require_new(out)
        ensemble, base = open_ensemble(run, server, population, size, place)
        require_adapters(ensemble.scale_map)
        _write_adapters(ensemble, base, out)
        return
    refuse_given(
        {"n": population, "k": size},
        "this writes one model, and the option names an ensemble",
        "give --manifest or --adapters for an ensemble, --rank for a candidate",
    )
    require_new(out)
    found = open_run(run, server, tables=[DESCRIPTORS])
    if rank is None:
        lineage = model_export.trained_lineage(found)
        base = place.find(found.spec.model, lineage.model_digest)
        card = model_export.state_card(found, base, lineage)
        digest = export_state(base, lineage, out, card=card)
        figures: dict[str, object] = {"updates": len(lineage.steps)}
        which = f"{len(lineage.steps)} updates"
    else:
        ranked = model_export.ranked_candidate(found, rank)
        base = place.find(found.spec.model, ranked.scale_map.model_digest)
        card = model_export.candidate_card(found, base, ranked, rank)
        digest = export_candidate(base, ranked.descriptor, ranked.scale_map, out, card=card)
        reward = ranked.selection_reward
        figures = {"rank": rank, "candidate": ranked.index, "selection_reward": reward}
        which = f"rank {rank}, candidate {ranked.index}, selection reward {reward:.4f}"
    document = {"directory": str(out), **figures, "weights_sha256": digest}
    emit(document, f"{which}  {digest[:16]}  {out}")


def _write_manifest(
    ensemble: "EnsembleDefinition", place: "BasePlace", row: str, out: Path
) -> None:
    from modnorm.files import write_file
    from modnorm.prediction.manifest import encode_manifest, make_manifest

    base = place.find(ensemble.model, ensemble.model_digest)
    content = encode_manifest(make_manifest(ensemble, base, json.loads(row)))
    write_file(out, content)
    named = f"N={ensemble.population} K={ensemble.ensemble_size}"
    document = {"file": str(out), "bytes": len(content), "experts": list(ensemble.indices)}
    emit(document, f"{named}  {len(content):,} bytes  {out}")


def _write_adapters(ensemble: "EnsembleDefinition", base: "Checkpoint", out: Path) -> None:
    from modnorm.prediction.ensemble_adapters import export_adapters, serving_command

    names = export_adapters(ensemble, base, out)
    command = serving_command(base, ensemble.scale_map, out, names)
    experts = dict(zip(names, ensemble.indices, strict=True))
    if emit_json({"directory": str(out), "experts": experts, "command": list(command)}):
        return
    for name, index in experts.items():
        echo(f"{out / name}  candidate {index}")
    echo(shlex.join(command))


@interruptible(STARTS_AGAIN)
def rebuild(
    manifest: Annotated[Path, arg("MANIFEST", "File of `modnorm export --manifest`.")],
    *,
    out: Annotated[Path, opt("--out DIR", "Where the checkpoints go.")],
    model: BaseModel = None,
    revision: BaseRevision = None,
) -> None:
    """Write and verify the checkpoints of an exported ensemble.

    Each expert gets a directory, best first. Its weights must have the SHA-256 that the manifest
    states.
    """
    from modnorm.prediction.ensemble_adapters import rebuild as rebuild_checkpoints
    from modnorm.prediction.manifest import read_ensemble_manifest
    from modnorm.prediction.predictor import BasePlace

    read = read_ensemble_manifest(manifest)
    base = BasePlace(model, revision).find(read.ensemble.model, read.ensemble.model_digest)
    names = rebuild_checkpoints(read, base, out)
    digests = dict(zip(names, read.weights_sha256, strict=True))
    if emit_json({"directory": str(out), "weights_sha256": digests}):
        return
    for name, digest in digests.items():
        echo(f"{out / name}  {digest[:16]}  verified")
