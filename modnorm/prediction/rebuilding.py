"""The checkpoints of an ensemble, made again from its manifest and verified."""

from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.writing import atomic_directory, require_new
from modnorm.errors import ConflictError
from modnorm.perturbation.adapters import export_candidate
from modnorm.perturbation.model_card import TokenizerFinding, model_card
from modnorm.prediction.expert_cards import expert_facts
from modnorm.prediction.manifest import EnsembleManifest


def rebuild(
    manifest: EnsembleManifest, base: Checkpoint, directory: Path, finding: TokenizerFinding
) -> tuple[str, ...]:
    """Write a checkpoint with a model card for each expert, and verify its weights.

    The directory appears once all are verified.

    Args:
        manifest: The ensemble.
        base: Its base.
        directory: New or empty; it gets the folders `expert-1`, `expert-2`, ..., best first.
        finding: Whether `AutoTokenizer` can be used.

    Returns:
        The names of the folders.

    Raises:
        ConflictError: the directory is not empty, the weights have another digest than the
            manifest states, or the task makes another prompt here.
        InvalidInputError: the directory cannot be written.
        UnavailableError: writing failed; nothing was left behind.
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
