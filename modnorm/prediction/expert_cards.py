"""Model cards of an ensemble's experts: their facts, and whether `AutoTokenizer` can be used."""

from collections.abc import Mapping

from modnorm.checkpoint.prompts import differing_prompts
from modnorm.checkpoint.reference import Checkpoint
from modnorm.perturbation.model_card import TokenizerFinding, candidate_facts
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.manifest import EnsembleManifest


def check_example(manifest: EnsembleManifest, base: Checkpoint) -> TokenizerFinding:
    """Return whether `AutoTokenizer` reproduces the prompt of a manifest's question."""
    messages = manifest.ensemble.task.load().messages(manifest.prompt.question)
    return TokenizerFinding(1, len(differing_prompts(base, [messages])))


def expert_facts(ensemble: EnsembleDefinition, rank: int) -> Mapping[str, str]:
    """Return the facts of an expert's model card.

    Args:
        ensemble: The ensemble.
        rank: Rank of the expert in it, from 1.
    """
    expert, task = ensemble.experts[rank - 1], ensemble.task
    return {
        **candidate_facts(expert.descriptor, ensemble.scale_map.rank),
        "task": f"{task.name}, scorer {task.scorer}",
        "expert": f"{rank} of {ensemble.ensemble_size}, candidate {expert.index} of "
        f"{ensemble.population}",
        "definition": "`candidate.json`",
    }
