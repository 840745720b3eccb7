"""The candidate of a rank, or the trained model, of a finished run, with its model card."""

from dataclasses import dataclass

from modnorm.analysis.run import Run
from modnorm.analysis.run_files import REWRITE
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.model_card import candidate_facts, model_card


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate of a finished run, with all that its weights are made from."""

    index: int
    selection_reward: float
    descriptor: Descriptor
    """With the coefficients that its first evaluator resolved."""
    scale_map: ScaleMap


def ranked_candidate(run: Run, rank: int) -> Ranked:
    """Return the candidate of a rank in the whole population, from 1."""
    if run.spec.iterative is not None:
        raise InvalidInputError(
            f"{run.spec.method.name} trained one model, which has no rank",
            field="rank",
            remedy="omit --rank",
        )
    found = next((each for each in run.candidates if each.rank == rank), None)
    if found is None or found.selection_reward is None:
        last = sum(each.selection_reward is not None for each in run.candidates)
        raise InvalidInputError(
            f"there is no rank {rank}: {last} of {len(run.candidates)} candidates have a score",
            field="rank",
            remedy=f"name a rank from 1 to {last}",
        )
    (_, descriptor), scale_map = next(run.descriptors(found.index)), run.scale_map()
    if scale_map is None:
        raise PreconditionError("the run directory has no scale map", field="run", remedy=REWRITE)
    return Ranked(found.index, found.selection_reward, descriptor, scale_map)


def trained_lineage(run: Run) -> Lineage:
    """Return the lineage of the state that a run reports."""
    if run.spec.iterative is None:
        raise InvalidInputError(
            f"{run.spec.method.name} drew candidates and trained no model",
            field="rank",
            remedy="--rank 1 writes the best candidate",
        )
    lineage = run.lineage()
    if lineage is None:
        raise PreconditionError("the run directory has no lineage", field="run", remedy=REWRITE)
    return lineage


def candidate_card(run: Run, base: Checkpoint, ranked: Ranked, rank: int) -> str:
    facts = {
        **candidate_facts(ranked.descriptor, ranked.scale_map.rank),
        "task": f"{run.spec.task.name}, scorer {run.provenance['scorer']}",
        "rank": f"{rank} of {run.document['candidates']['total']} candidates",
        "mean selection reward": f"{ranked.selection_reward:.4f}",
        "definition": "`candidate.json`",
    }
    return model_card(base, f"Candidate {ranked.index} of {run.spec.name or 'a search'}", facts)


def state_card(run: Run, base: Checkpoint, lineage: Lineage) -> str:
    facts = {
        "method": run.spec.method.name,
        "noise": lineage.noise,
        "task": f"{run.spec.task.name}, scorer {run.provenance['scorer']}",
        "updates": str(len(lineage.steps)),
        "definition": "`lineage.json`",
    }
    return model_card(base, f"The trained model of {run.spec.name or 'a run'}", facts)
