"""The work of `modnorm export`: find a run, rebuild the weights and write them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from modnorm.checkpoint.writing import require_new
from modnorm.cli.console import emit_json, warn
from modnorm.cli.runs import opened_run
from modnorm.prediction.base_model import BasePlace

if TYPE_CHECKING:
    from modnorm.perturbation.model_card import TokenizerFinding


@dataclass(frozen=True, slots=True)
class _Written:
    """The printed description of a written checkpoint."""

    document: dict[str, object]
    line: str


def write_model(
    run: str, server: str | None, place: BasePlace, out: Path, rank: int | None, *, as_json: bool
) -> None:
    """Write the model of a run as a checkpoint, and print its description.

    Without a rank it is the model that an iterative method trained.
    """
    require_new(out)
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
    from modnorm.client.export_card import check_tokenizer, state_card
    from modnorm.client.ranked import trained_lineage
    from modnorm.perturbation.adapters import export_state

    with opened_run(run, server) as found:
        lineage = trained_lineage(found)
        base = place.find(found.spec.model, lineage.model_digest)
        finding = check_tokenizer(found, base)
        card = state_card(found, base, lineage, finding)
    digest, updates = export_state(base, lineage, out, card=card), len(lineage.steps)
    warn_of_tokenizer(finding)
    return _Written(
        {"directory": str(out), "updates": updates, "weights_sha256": digest},
        f"{updates} updates  {digest[:16]}  {out}",
    )


def _export_candidate(
    run: str, server: str | None, place: BasePlace, out: Path, rank: int
) -> _Written:
    from modnorm.client.export_card import candidate_card, check_tokenizer
    from modnorm.client.ranked import ranked_candidate
    from modnorm.perturbation.adapters import export_candidate

    with opened_run(run, server) as found:
        ranked = ranked_candidate(found, rank)
        base = place.find(found.spec.model, ranked.scale_map.model_digest)
        finding = check_tokenizer(found, base)
        card = candidate_card(found, base, ranked, rank, finding)
    digest = export_candidate(base, ranked.descriptor, ranked.scale_map, out, card=card)
    warn_of_tokenizer(finding)
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


def warn_of_tokenizer(finding: "TokenizerFinding") -> None:
    """Print a warning unless `AutoTokenizer` reproduces the checked prompts."""
    if not finding.holds:
        warn(finding.sentence)
