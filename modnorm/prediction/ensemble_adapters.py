"""The experts of an ensemble as adapters of one base, with the command that serves them."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from modnorm.checkpoint.checkpoint_files import CARD
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.writing import atomic_directory, require_new
from modnorm.errors import ConflictError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.exports import export_candidate, require_adapters, write_adapter
from modnorm.perturbation.model_card import adapter_card, candidate_facts, model_card
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.manifest import EnsembleManifest

_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM takes for `--max-lora-rank`."""


def export_adapters(
    ensemble: EnsembleDefinition, base: Checkpoint, directory: Path
) -> tuple[str, ...]:
    """Write an adapter for each expert, and a page that names the command that serves them."""
    require_new(directory)
    names = tuple(f"expert-{rank}" for rank in range(1, ensemble.ensemble_size + 1))
    with atomic_directory(directory) as draft:
        for rank, (name, expert) in enumerate(zip(names, ensemble.experts, strict=True), 1):
            title = f"Candidate {expert.index} as an adapter"
            card = adapter_card(base, title, expert_facts(ensemble, rank))
            write_adapter(base, expert.descriptor, ensemble.scale_map, draft / name, card=card)
        page = _page(ensemble, base, names)
        (draft / CARD).write_text(page, encoding="utf-8")
    return names


def serving_command(
    base: Checkpoint, scale_map: ScaleMap, folder: Path, names: Sequence[str]
) -> tuple[str, ...]:
    """Return the words of the command by which vLLM serves adapters of a base in one batch."""
    rank = require_adapters(scale_map)
    largest = next(each for each in _VLLM_RANKS if each >= rank)
    revision = () if base.revision is None else ("--revision", base.revision)
    return (
        *("vllm", "serve", base.location, *revision, "--enable-lora"),
        *("--max-loras", str(len(names)), "--max-lora-rank", str(largest)),
        *("--lora-modules", *(f"{name}={folder / name}" for name in names)),
    )


def _page(ensemble: EnsembleDefinition, base: Checkpoint, names: Sequence[str]) -> str:
    command = shlex.join(serving_command(base, ensemble.scale_map, Path(), names))
    rows = "".join(
        f"| `{name}` | {expert.index} | {expert.descriptor.seed} |\n"
        for name, expert in zip(names, ensemble.experts, strict=True)
    )
    return (
        f"# Experts of {base.name} as adapters\n\n"
        f"`modnorm export --adapters` wrote these LoRA adapters of {base.name} (SHA-256 "
        f"{base.digest}), the best first.\n\n"
        f"| adapter | candidate | seed |\n|---|---:|---:|\n{rows}\n"
        f"## Serving\n\nvLLM serves all of them in one batch. In this directory:\n\n"
        f"    {command}\n\n"
        "Each adapter is a model of that server. The vote over their answers is the ensemble's "
        "answer.\n"
    )


def expert_facts(ensemble: EnsembleDefinition, rank: int) -> Mapping[str, str]:
    expert, task = ensemble.experts[rank - 1], ensemble.task
    return {
        **candidate_facts(expert.descriptor, ensemble.scale_map.rank),
        "task": f"{task.name}, scorer {task.scorer}",
        "expert": f"{rank} of {ensemble.ensemble_size}, candidate {expert.index} of "
        f"{ensemble.population}",
        "definition": "`candidate.json`",
    }


def rebuild(manifest: EnsembleManifest, base: Checkpoint, directory: Path) -> tuple[str, ...]:
    """Write a checkpoint with a model card for each expert, and verify its weights.

    The directory appears once all are verified.
    """
    require_new(directory)
    manifest.prompt.check(manifest.ensemble, base)
    experts = zip(manifest.ensemble.experts, manifest.weights_sha256, strict=True)
    names = []
    with atomic_directory(directory) as draft:
        for rank, (expert, stated) in enumerate(experts, 1):
            names.append(f"expert-{rank}")
            facts = expert_facts(manifest.ensemble, rank)
            card = model_card(base, f"Candidate {expert.index}", facts)
            scale_map, place = manifest.ensemble.scale_map, draft / names[-1]
            found = export_candidate(base, expert.descriptor, scale_map, place, card=card)
            if found != stated:
                raise ConflictError(
                    f"the weights of candidate {expert.index} have digest {found[:16]}, the "
                    f"manifest states {stated[:16]}",
                    field="manifest",
                    remedy="the manifest is damaged, or another version of the noise wrote it",
                )
    return tuple(names)
