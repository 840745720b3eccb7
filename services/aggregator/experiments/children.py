"""Experiments that are parts of a distillation: searches, harvests and evaluations.

All functions work inside a caller's write transaction that has locked the distillation.
"""

import uuid

from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.distillation.sampling_seeds import harvest_seed, round_seed
from modnorm.services.aggregator.experiments.expert_selection import harvest_experts
from modnorm.services.aggregator.experiments.lifecycle import add_jobs, end, record
from modnorm.services.aggregator.storage.lookups import lock_experiment
from modnorm.services.aggregator.storage.states import (
    TERMINAL,
    ExperimentState,
    Purpose,
    Split,
)
from modnorm.services.aggregator.storage.table_statistics import insert_rows
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Round
from modnorm.spec import ExperimentSpec, ModelSpec
from modnorm.spec.experiment import suffixed


def child_spec(spec: ExperimentSpec, model: str, round_number: int) -> ExperimentSpec:
    """Return the spec of a child of a distillation's round.

    The child searches around `model`, with a population of its own. A student's sensitivities
    differ from the base's, so a profile that the spec names is used for the base only.
    """
    method, reference = spec.method, spec.model
    if model != spec.model.name:
        method = method.model_copy(update={"profile": None})
        reference = ModelSpec(name=model)
    seed = round_seed(spec.population.seed, round_number)
    return spec.model_copy(
        update={
            "name": suffixed(spec.name, f"round {round_number}"),
            "model": reference,
            "method": method,
            "population": spec.population.model_copy(update={"seed": seed}),
            "distillation": None,
        }
    )


def add_search(session: Session, parent: Experiment, part: Round, now: float) -> Experiment:
    """Store the search of a round, which the conductor sets up."""
    child = _child(parent, part, Purpose.SEARCH, part.searched_model, part.searched_digest, now)
    if part.searched_digest == parent.model_digest:
        child.profile_digest = parent.profile_digest
    return _stored(session, child, "created", now)


def add_evaluation(
    session: Session, parent: Experiment, part: Round, model: tuple[str, str], now: float
) -> Experiment:
    """Store the evaluation of a model, by name and digest, which the conductor sets up."""
    child = _child(parent, part, Purpose.EVALUATION, *model, now)
    child.needs_profile = False
    child.development_digest = parent.development_digest
    child.development_rows = parent.development_rows
    return _stored(session, child, "created", now)


def add_harvest(
    session: Session, parent: Experiment, part: Round, search: Experiment, now: float
) -> Experiment:
    """Store the harvest of a round and its jobs.

    Each answer of an expert to the rows is a job of its own. So the candidates are the experts,
    each repeated for its samples, best first. The child does not name the held-out
    rows.
    """
    harvest = parent.distillation.harvest
    experts = harvest_experts(session, parent, search)
    child = _child(parent, part, Purpose.HARVEST, part.searched_model, part.searched_digest, now)
    child.state = ExperimentState.VOTING
    child.scale_map_digest = search.scale_map_digest
    child.heldout_digest, child.heldout_rows = parent.training_digest, parent.training_rows
    child.prompts_digest = ""
    child.temperature = harvest.temperature
    child.top_p = harvest.top_p if harvest.temperature else 1.0
    child.sampling_seed = harvest_seed(parent.spec.population.seed, part.index)
    message = (
        f"{len(experts)} experts answer {parent.training_rows} training rows, "
        f"{harvest.samples} times each"
    )
    _stored(session, child, message, now)
    stored = _candidates(session, search, (BASE_INDEX, *experts))
    copies = [
        stored[expert] | {"experiment_id": child.id, "index": rank * harvest.samples + sample}
        for rank, expert in enumerate(experts)
        for sample in range(harvest.samples)
    ]
    jobs = list(range(len(copies)))
    if harvest.only_wrong:
        copies.append(stored[BASE_INDEX] | {"experiment_id": child.id})
        jobs.insert(0, BASE_INDEX)
    insert_rows(session, Candidate, copies)
    if add_jobs(session, child, {Split.HARVEST: jobs}) == len(jobs):
        end(session, child, ExperimentState.SUCCEEDED, "answered", now)
    return child


def end_children(session: Session, parent_id: str, now: float) -> None:
    """Cancel all parts of a distillation that have not ended."""
    query = (
        select(Experiment.id)
        .where(Experiment.parent_id == parent_id, col(Experiment.state).not_in(TERMINAL))
        .order_by(col(Experiment.id))
    )
    for child_id in session.exec(query).all():
        child = lock_experiment(session, child_id)
        end(session, child, ExperimentState.CANCELLED, "the distillation has ended", now)


def _child(  # noqa: PLR0913, PLR0917 - the child's place and model
    parent: Experiment,
    part: Round,
    purpose: Purpose,
    model: str,
    model_digest: str,
    now: float,
) -> Experiment:
    # A part may outlive its distillation, and the distillation's id may come again.
    child_id = str(uuid.uuid4())
    spec = child_spec(parent.spec, model, part.index)
    if purpose is Purpose.HARVEST:
        # With drafts, vLLM would use the random numbers of a request in another order.
        engine = spec.engine.model_copy(update={"drafts": "none"})
        spec = spec.model_copy(update={"engine": engine})
    return Experiment(
        id=child_id,
        tenant=parent.tenant,
        request_id=f"{parent.request_id}/{part.index}/{purpose}",
        request_key=f"\x1f{child_id}",  # differs from those of submitted experiments
        spec_json=spec.model_dump_json(),
        spec_digest=spec.digest,
        create_time=now,
        model_digest=model_digest,
        scorer=parent.scorer,
        max_tokens=parent.max_tokens,
        needs_profile=parent.needs_profile,
        selection_digest=parent.selection_digest,
        heldout_digest=parent.heldout_digest,
        selection_rows=parent.selection_rows,
        heldout_rows=parent.heldout_rows,
        selection_revision=parent.selection_revision,
        heldout_revision=parent.heldout_revision,
        prompts_digest=parent.prompts_digest,
        purpose=purpose,
        parent_id=parent.id,
    )


def _stored(session: Session, child: Experiment, message: str, now: float) -> Experiment:
    session.add(child)
    session.flush()
    record(session, child, message, now)
    return child


def _candidates(
    session: Session, search: Experiment, indices: tuple[int, ...]
) -> dict[int, dict[str, object]]:
    """Return the columns of candidates with their resolved coefficients, by index."""
    rows = session.exec(
        select(Candidate).where(
            Candidate.experiment_id == search.id, col(Candidate.index).in_(indices)
        )
    )
    return {row.index: row.model_dump() for row in rows}
