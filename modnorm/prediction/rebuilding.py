"""The checkpoints of an ensemble, made again from its manifest and verified, and their cards."""

from collections.abc import Mapping
from pathlib import Path

from modnorm.checkpoint.prompts import differing_prompts
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.writing import atomic_directory, require_new
from modnorm.errors import ConflictError
from modnorm.perturbation.adapters import export_candidate
from modnorm.perturbation.model_card import TokenizerFinding, candidate_facts, model_card
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.manifest import EnsembleManifest


def check_example(manifest: EnsembleManifest, base: Checkpoint) -> TokenizerFinding:
    """Return whether `AutoTokenizer` reproduces the prompt of a manifest's question."""
    messages = manifest.ensemble.task.load().messages(manifest.prompt.question)
    return TokenizerFinding(1, len(differing_prompts(base, [messages])))


def expert_facts(ensemble: EnsembleDefinition, rank: int) -> Mapping[str, str]:
    """Return the facts of an expert's model card."""
    expert, task = ensemble.experts[rank - 1], ensemble.task
    return {
        **candidate_facts(expert.descriptor, ensemble.scale_map.rank),
        "task": f"{task.name}, scorer {task.scorer}",
        "expert": f"{rank} of {ensemble.ensemble_size}, candidate {expert.index} of "
        f"{ensemble.population}",
        "definition": "`candidate.json`",
    }


def rebuild(
    manifest: EnsembleManifest, base: Checkpoint, directory: Path, finding: TokenizerFinding
) -> tuple[str, ...]:
    """Write a checkpoint with a model card for each expert, and verify its weights.

    The directory appears once all are verified.
    """
    require_new(directory)
    manifest.prompt.check(manifest.ensemble, base)
    with atomic_directory(directory) as draft:
        return _write(manifest, base, draft, finding)


def _write(
    manifest: EnsembleManifest, base: Checkpoint, draft: Path, finding: TokenizerFinding
) -> tuple[str, ...]:
    names = []
    experts = zip(manifest.ensemble.experts, manifest.weights_sha256, strict=True)
    for rank, (expert, stated) in enumerate(experts, 1):
        name = f"expert-{rank}"
        facts = expert_facts(manifest.ensemble, rank)
        card = model_card(base, f"Candidate {expert.index}", facts, finding)
        scale_map = manifest.ensemble.scale_map
        found = export_candidate(base, expert.descriptor, scale_map, draft / name, card=card)
        if found != stated:
            raise ConflictError(
                f"the weights of candidate {expert.index} have digest {found[:16]}, the manifest "
                f"states {stated[:16]}",
                field="manifest",
                remedy="the manifest is damaged, or another version of the noise wrote it",
            )
        names.append(name)
    return tuple(names)
