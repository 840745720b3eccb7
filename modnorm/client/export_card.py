"""The model card of a run's export, with a check of its tokenizer on the run's prompts."""

import json

from modnorm.analysis.run import Run
from modnorm.checkpoint.prompts import differing_prompts
from modnorm.checkpoint.reference import Checkpoint
from modnorm.client.ranked import Ranked
from modnorm.errors import InvalidInputError
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.model_card import TokenizerFinding, candidate_facts, model_card
from modnorm.spec_checks import task_of

_PROMPTS = 100
"""Rows of each split whose prompts are checked."""


def check_tokenizer(run: Run, base: Checkpoint) -> TokenizerFinding:
    """Return whether `AutoTokenizer` reproduces the run's prompts."""
    try:
        task = task_of(run.spec)
    except InvalidInputError:
        return TokenizerFinding(0, 0)
    rows = [row for split in ("selection", "heldout") for row in run.rows(split)[:_PROMPTS]]
    conversations = [task.messages(task.parse(json.loads(row))) for row in rows]
    return TokenizerFinding(len(rows), len(differing_prompts(base, conversations)))


def candidate_card(
    run: Run, base: Checkpoint, ranked: Ranked, rank: int, finding: TokenizerFinding
) -> str:
    """Return the model card of a candidate."""
    facts = {
        **candidate_facts(ranked.descriptor, ranked.scale_map.rank),
        "task": f"{run.spec.task.name}, scorer {run.provenance['scorer']}",
        "rank": f"{rank} of {run.document['candidates']['total']} candidates",
        "mean selection reward": f"{ranked.selection_reward:.4f}",
        "definition": "`candidate.json`",
    }
    return model_card(
        base, f"Candidate {ranked.index} of {run.spec.name or 'a search'}", facts, finding
    )


def state_card(run: Run, base: Checkpoint, lineage: Lineage, finding: TokenizerFinding) -> str:
    """Return the model card of a trained state."""
    facts = {
        "method": run.spec.method.name,
        "noise": lineage.noise,
        "task": f"{run.spec.task.name}, scorer {run.provenance['scorer']}",
        "updates": str(len(lineage.steps)),
        "definition": "`lineage.json`",
    }
    return model_card(base, f"The trained model of {run.spec.name or 'a run'}", facts, finding)
