"""`modnorm export`: the model that a run trained or found, as a checkpoint."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.client.cli.console import emit_json
from modnorm.client.cli.options import Json, settings
from modnorm.client.rundir import lineage_file, spec_file
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.spec import ExperimentSpec, parse_spec

if TYPE_CHECKING:
    from modnorm.client.stored_run import StoredRun

Run = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a finished run.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the checkpoint goes.")]
Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        metavar="K",
        min=1,
        help="The candidate that is K-th best of the whole population.",
    ),
]


def export(directory: Run, *, out: Out, rank: Rank = None, as_json: Json = False) -> None:
    """Write the model that es, mezo or zo_finetuner reported, or a candidate of another method.

    The weights are made again from the base and what the run stored, the lineage or the
    candidate's descriptor, bit for bit those that answered.
    """
    if rank is not None:
        _export_candidate(directory, out, rank, as_json=as_json)
        return
    from modnorm.baselines.export import export_state
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.perturbation.lineage import Lineage

    spec, text = _read_trained(directory)
    lineage = Lineage.from_json(text)
    checkpoint = resolve_checkpoint(spec.model.name, spec.model.revision)
    digest = export_state(checkpoint, lineage, out)
    if as_json:
        emit_json({"directory": str(out), "updates": len(lineage.steps), "weights_sha256": digest})
        return
    typer.echo(f"{len(lineage.steps)} updates  {digest[:16]}  {out}")


def _read_trained(directory: Path) -> tuple[ExperimentSpec, str]:
    """Return the spec of an iterative run, and its lineage."""
    try:
        text = lineage_file(directory).read_text(encoding="utf-8")
        return parse_spec(json.loads(spec_file(directory).read_text(encoding="utf-8"))), text
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{directory} is no finished run of an iterative method: {error}",
            field="run",
            remedy="name the directory that `modnorm run` wrote for es, mezo or zo_finetuner; "
            "of a run of another method --rank 1 writes the best candidate",
        ) from error


def _find(directory: Path) -> "StoredRun":
    """Return a run whose lab's state is there: descriptors are nowhere else."""
    from modnorm.client.stored_run import find_run

    try:
        return find_run(directory)
    except PreconditionError as error:
        raise PreconditionError(
            f"{directory} holds results, but not the descriptors of the candidates",
            field="run",
            remedy="name the directory that `modnorm run` worked in, with its state",
        ) from error


def _export_candidate(directory: Path, out: Path, rank: int, *, as_json: bool) -> None:
    from modnorm.checkpoint.reference import resolve_checkpoint
    from modnorm.checkpoint.writing import require_new
    from modnorm.client.ranked import ranked_candidate
    from modnorm.perturbation.export import export_candidate

    found = _find(directory)
    if found.spec.iterative is not None:
        raise InvalidInputError(
            f"{found.spec.method.name} trained one model, which has no rank",
            field="rank",
            remedy="leave --rank out",
        )
    require_new(out)
    with found.open(settings()) as (client, experiment):
        ranked = ranked_candidate(client, experiment, rank)
    checkpoint = resolve_checkpoint(found.spec.model.name, found.spec.model.revision)
    digest = export_candidate(checkpoint, ranked.descriptor, ranked.scale_map, out)
    if as_json:
        emit_json(
            {
                "directory": str(out),
                "rank": rank,
                "candidate": ranked.index,
                "selection_reward": ranked.selection_reward,
                "weights_sha256": digest,
            }
        )
        return
    reward = f"selection reward {ranked.selection_reward:.4f}"
    typer.echo(f"rank {rank}, candidate {ranked.index}, {reward}  {digest[:16]}  {out}")
