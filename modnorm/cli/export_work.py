"""What `modnorm export` does: finds a run, makes the weights again and writes them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from modnorm.checkpoint.writing import require_new
from modnorm.cli.console import emit_json
from modnorm.cli.options import in_lab, lab_of, settings
from modnorm.client import ModnormClient
from modnorm.client.base_model import BasePlace
from modnorm.client.rundir import lineage_file, spec_file
from modnorm.errors import InvalidInputError
from modnorm.spec import ModelSpec, parse_spec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

if TYPE_CHECKING:
    from modnorm.perturbation.lineage import Lineage


@dataclass(frozen=True, slots=True)
class _Written:
    """What is told of a checkpoint that was written."""

    document: dict[str, object]
    line: str


def write_model(  # noqa: PLR0913 - what the command is told
    run: str, server: str | None, place: BasePlace, out: Path, rank: int | None, *, as_json: bool
) -> None:
    """Write the model of a run as a checkpoint, and print what it is.

    Args:
        run: Directory of a run, or id of an experiment.
        server: The lab that ran it.
        place: Where the base is.
        out: Directory of the checkpoint.
        rank: The candidate that is K-th best; None for what an iterative method trained.
        as_json: Print a document.
    """
    require_new(out)
    server = lab_of(run, server)
    written = (
        _export_trained(run, server, place, out)
        if rank is None
        else _export_candidate(run, server, place, out, rank)
    )
    if as_json:
        emit_json(written.document)
    else:
        typer.echo(written.line)


def _export_trained(run: str, server: str | None, place: BasePlace, out: Path) -> _Written:
    from modnorm.perturbation.checkpoint_export import export_state

    model, lineage = _read_trained(Path(run)) if server is None else _fetch_trained(run, server)
    digest = export_state(place.find(model, lineage.model_digest), lineage, out)
    updates = len(lineage.steps)
    return _Written(
        {"directory": str(out), "updates": updates, "weights_sha256": digest},
        f"{updates} updates  {digest[:16]}  {out}",
    )


def _read_trained(directory: Path) -> tuple[ModelSpec, "Lineage"]:
    """Return the base of an iterative run, and the lineage of what it trained."""
    from modnorm.perturbation.lineage import Lineage

    try:
        text = lineage_file(directory).read_text(encoding="utf-8")
        spec = parse_spec(json.loads(spec_file(directory).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{directory} is no finished run of an iterative method: {error}",
            field="run",
            remedy="name the directory that `modnorm run` wrote for es, mezo or zo_finetuner, or "
            "an experiment's id and its lab with --server or MODNORM_SERVER; of a run of another "
            "method --rank 1 writes the best candidate",
        ) from error
    return spec.model, Lineage.from_json(text)


def _fetch_trained(experiment_id: str, server: str) -> tuple[ModelSpec, "Lineage"]:
    from modnorm.client.trained import trained_lineage

    with in_lab(experiment_id, server) as (client, experiment):
        return spec_from_proto(experiment.spec).model, trained_lineage(client, experiment)


def _export_candidate(
    run: str, server: str | None, place: BasePlace, out: Path, rank: int
) -> _Written:
    from modnorm.client.ranked import ranked_candidate
    from modnorm.perturbation.checkpoint_export import export_candidate

    with _opened(run, server) as (client, experiment):
        ranked = ranked_candidate(client, experiment, rank)
    model = spec_from_proto(experiment.spec).model
    checkpoint = place.find(model, ranked.scale_map.model_digest)
    digest = export_candidate(checkpoint, ranked.descriptor, ranked.scale_map, out)
    reward = ranked.selection_reward
    return _Written(
        {
            "directory": str(out),
            "rank": rank,
            "candidate": ranked.index,
            "selection_reward": reward,
            "weights_sha256": digest,
        },
        f"rank {rank}, candidate {ranked.index}, selection reward {reward:.4f}  "
        f"{digest[:16]}  {out}",
    )


@contextmanager
def _opened(
    run: str, server: str | None
) -> Iterator[tuple[ModnormClient, experiments.Experiment]]:
    """Find an experiment, in a lab or in a directory whose lab is started for the reading."""
    from modnorm.client.ranked import check_has_ranks
    from modnorm.client.stored_run import find_run

    if server is not None:
        with in_lab(run, server) as found:
            yield found
        return
    stored = find_run(Path(run))
    check_has_ranks(stored.spec)  # what can be told before a lab is started
    with stored.open(settings()) as found:
        yield found
