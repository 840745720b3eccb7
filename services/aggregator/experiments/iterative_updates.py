"""Updates of iterative runs, each computed when the last of its candidates is scored.

A batch holds the jobs that can run concurrently: the candidates around the present state. It also
holds the state if its evaluation on the development or held-out rows is due. The transaction that
stores the last report of a batch appends the step to the lineage and opens the next batch. So a
killed run resumes from its last report.

All functions work inside a caller's write transaction that has locked the experiment.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import fsum

from sqlmodel import Session, col, select

from modnorm.analysis.run_data import StateRow
from modnorm.baselines.updates import (
    DevelopmentResult,
    best_state,
    es_seeds,
    es_step,
    mezo_step,
    step_seed,
    zo_step,
)
from modnorm.errors import PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage, Rounding, Step, next_digest
from modnorm.search.answers import BASE_INDEX
from modnorm.search.ranking import mean_reward
from modnorm.services.aggregator.experiments.lifecycle import Batch, add_candidates
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Candidate,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Split,
    Update,
    state_index,
)
from modnorm.spec import ExperimentSpec, IterativeSpec
from modnorm.wire.answer_sheets import unpack_answers

_STATE_COUNTS = (
    (Split.DEVELOPMENT, "answers", "answers_done"),
    (Split.DEVELOPMENT, "tokens", "tokens"),
    (Split.DEVELOPMENT, "attempts", "attempts"),
    (Split.HELDOUT, "answers", "answers_done"),
    (Split.HELDOUT, "tokens", "tokens"),
    (Split.HELDOUT, "attempts", "attempts"),
    (Split.HELDOUT, "valid", "valid"),
    (Split.HELDOUT, "truncated", "truncated"),
)
"""Split, name and job's column of the counts of a state."""


def first_batch(session: Session, experiment: Experiment) -> tuple[Batch, str]:
    """Return the first batch, with the base on the selection rows, and its description."""
    batch = _batch(session, experiment)
    batch = {**batch, Split.SELECTION: (BASE_INDEX, *batch[Split.SELECTION])}
    return batch, f"{_settings(experiment).updates} updates follow"


def next_batch(session: Session, experiment: Experiment) -> tuple[Batch, str] | None:
    """Take the step of a finished batch, if all its candidates are scored."""
    total = _settings(experiment).updates
    if experiment.updates_done == total:
        return None
    if other_side := _other_side(session, experiment):
        return {Split.SELECTION: other_side}, ""
    step, done = _step(session, experiment), experiment.updates_done
    digest = next_digest(state_digest(session, experiment, done), step)
    session.add(
        Update(experiment_id=experiment.id, index=done, step=step.to_json(), digest=digest)
    )
    experiment.updates_done += 1
    session.flush()
    scored = [score for score in step.scores if score is not None]
    reward = fsum(scored) / len(scored)
    message = f"update {experiment.updates_done} of {total}: mean reward {reward:.4f}"
    return _batch(session, experiment), message


def final_candidates(session: Session, experiment: Experiment) -> tuple[int, ...]:
    """Return the base and the reported state, without those that have answered held-out rows."""
    reported = reported_updates(session, experiment)
    _add_state(session, experiment, reported)
    answered = session.exec(
        select(Job.candidate).where(Job.experiment_id == experiment.id, Job.split == Split.HELDOUT)
    ).all()
    wanted = sorted({BASE_INDEX, state_index(reported)} - set(answered), reverse=True)
    return tuple(wanted)


def reported_updates(
    session: Session, experiment: Experiment, results: Sequence[DevelopmentResult] | None = None
) -> int:
    """Return the number of updates of the state that the run reports.

    The results on the development rows, in order, are read if not passed.
    """
    if _settings(experiment).report == "last":
        return experiment.updates_done
    if results is None:
        results = development_results(session, experiment)
    return best_state(results).step


def development_results(session: Session, experiment: Experiment) -> list[DevelopmentResult]:
    """Return the results of states on the development rows, in order of their updates."""
    rows = session.exec(
        select(Job.candidate, Job.metric, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(Job.experiment_id == experiment.id, Job.split == Split.DEVELOPMENT)
        .order_by(col(Job.candidate).desc())
    )
    return [
        DevelopmentResult(
            step=BASE_INDEX - index,
            accuracy=metric or 0.0,
            reward=mean_reward([answer.reward for answer in unpack_answers(sheet)]),
        )
        for index, metric, sheet in rows
    ]


def evaluated_states(session: Session, experiment: Experiment) -> list[StateRow]:
    """Return the evaluated states of an iterative run in order; no states of other runs."""
    if not experiment.is_iterative:
        return []
    done = session.exec(
        select(Job).where(
            Job.experiment_id == experiment.id,
            col(Job.split).in_((Split.DEVELOPMENT, Split.HELDOUT)),
            col(Job.candidate) <= state_index(0),
            Job.state == JobState.DONE,
        )
    )
    jobs = {(BASE_INDEX - job.candidate, job.split): job for job in done}
    developed = development_results(session, experiment)
    results = {one.step: one for one in developed}
    reported = None
    if experiment.state in {ExperimentState.VOTING, ExperimentState.SUCCEEDED}:
        reported = reported_updates(session, experiment, developed)
    lineage = lineage_of(session, experiment)
    rewards: list[Sequence[float | None]] = [step.scores for step in lineage.steps]
    rewards.append(rewards_of(session, experiment, len(rewards)))
    states = []
    for updates in sorted({updates for updates, _ in jobs}):
        result = results.get(updates)
        heldout = jobs.get((updates, Split.HELDOUT))
        scored = [reward for reward in rewards[updates] if reward is not None]
        counts = {
            f"{split}_{name}": getattr(job, column)
            for split, name, column in _STATE_COUNTS
            if (job := jobs.get((updates, split)))
        }
        states.append(
            StateRow(
                updates=updates,
                lineage=lineage.digests[updates],
                reported=updates == reported,
                mean_reward=fsum(scored) / len(scored) if scored else None,
                development_metric=result.accuracy if result else None,
                development_reward=result.reward if result else None,
                heldout_metric=heldout.metric if heldout else None,
                **counts,
            )
        )
    return states


def lineage_of(session: Session, experiment: Experiment) -> Lineage:
    """Return the lineage of all updates that a run has made."""
    query = (
        select(Update.step)
        .where(Update.experiment_id == experiment.id)
        .order_by(col(Update.index))
    )
    steps = map(Step.from_json, session.exec(query))
    return _origin(experiment).extended(*steps)


def steps_to(
    session: Session, experiment: Experiment, digest: str, after: int
) -> tuple[str, list[str]] | None:
    """Return the origin of a run and its steps to a state, without the first `after`, as JSON."""
    if not experiment.is_iterative:
        return None
    origin = _origin(experiment)
    steps = select(Update.step).where(
        Update.experiment_id == experiment.id, col(Update.index) >= after
    )
    last = session.exec(
        select(Update.index).where(Update.experiment_id == experiment.id, Update.digest == digest)
    ).first()
    if last is None:
        return (origin.to_json(), []) if digest == origin.digest else None
    query = steps.where(col(Update.index) <= last).order_by(col(Update.index))
    return origin.to_json(), list(session.exec(query))


def state_digest(session: Session, experiment: Experiment, updates: int) -> str:
    """Return the digest of a state by its number of updates."""
    if not updates:
        return _origin(experiment).digest
    return session.exec(
        select(Update.digest).where(
            Update.experiment_id == experiment.id, Update.index == updates - 1
        )
    ).one()


def rewards_of(session: Session, experiment: Experiment, update: int) -> list[float | None]:
    """Return the mean reward of each candidate of an update, in order; None if unscored."""
    count = experiment.spec.population.size
    first = update * count
    scored = dict(
        session.exec(
            select(Job.candidate, Job.metric).where(
                Job.experiment_id == experiment.id,
                Job.split == Split.SELECTION,
                Job.state == JobState.DONE,
                col(Job.candidate) >= first,
                col(Job.candidate) < first + count,
            )
        ).all()
    )
    return [scored.get(index) for index in range(first, first + count)]


def _settings(experiment: Experiment) -> IterativeSpec:
    settings = experiment.spec.iterative
    if settings is None:
        raise PreconditionError(f"{experiment.spec.method.name} makes no updates")
    return settings


def _origin(experiment: Experiment) -> Lineage:
    rounding = Rounding(_settings(experiment).rounding)
    return Lineage(experiment.model_digest, experiment.spec.population.noise, rounding)


def _batch(session: Session, experiment: Experiment) -> Batch:
    """Store the candidates of the present state; return their indices by split."""
    settings, updates = _settings(experiment), experiment.updates_done
    last = updates == settings.updates
    batch: dict[Split, Collection[int]] = {Split.SELECTION: ()}
    if not last:
        batch[Split.SELECTION] = _add_population(session, experiment)
    due = last or updates % settings.evaluate_every == 0
    if due and experiment.development_digest:
        batch[Split.DEVELOPMENT] = (state_index(updates),)
    if updates in settings.monitor:
        batch[Split.HELDOUT] = (state_index(updates),)
    if len(batch) > 1:
        _add_state(session, experiment, updates)
    return batch


def _other_side(session: Session, experiment: Experiment) -> tuple[int, ...]:
    """Store the second candidate of a step, if due, after a generator proposed the first."""
    first = experiment.updates_done * experiment.spec.population.size
    if (
        not experiment.generator_digest
        or session.get(Candidate, (experiment.id, first + 1)) is not None
    ):
        return ()
    plus = session.get_one(Candidate, (experiment.id, first)).descriptor
    if plus.coefficients is None:
        raise PreconditionError(f"the generator proposed nothing for candidate {first}")
    opposite = tuple(-one for one in plus.coefficients)
    minus = replace(plus, radius=-plus.radius, coefficients=opposite)
    add_candidates(session, experiment.id, {first + 1: minus})
    return (first + 1,)


def _add_population(session: Session, experiment: Experiment) -> range:
    """Store the candidates of an update, except those that a generator still has to propose."""
    spec, update = experiment.spec, experiment.updates_done
    state = state_digest(session, experiment, update)
    first = update * spec.population.size
    around = list(_around(spec, update, state, experiment.scale_map_digest or ""))
    if experiment.generator_digest:
        del around[1:]
    add_candidates(session, experiment.id, dict(enumerate(around, first)))
    return range(first, first + len(around))


def _around(spec: ExperimentSpec, update: int, state: str, scale_map: str) -> Iterator[Descriptor]:
    """Yield the candidates of one update."""
    noise, method = spec.population.noise, spec.method
    if method.name == "es":
        seeds = es_seeds(spec.population.seed, update, spec.population.size)
        radii = [method.radius] * len(seeds)
    else:
        seeds = (step_seed(spec.population.seed, update),) * 2
        radii = [method.radius, -method.radius]
    for seed, radius in zip(seeds, radii, strict=True):
        yield Descriptor(noise, seed, method.name, radius, scale_map, lineage=state)


def _add_state(session: Session, experiment: Experiment, updates: int) -> None:
    """Store a state as a candidate of radius 0, unless it is stored."""
    index = state_index(updates)
    if session.get(Candidate, (experiment.id, index)) is not None:
        return
    base = session.get_one(Candidate, (experiment.id, BASE_INDEX)).descriptor
    still = replace(base, lineage=state_digest(session, experiment, updates))
    add_candidates(session, experiment.id, {index: still})


def _step(session: Session, experiment: Experiment) -> Step:
    """Return the step that the scored candidates of the present state give."""
    spec, settings = experiment.spec, _settings(experiment)
    update, size = experiment.updates_done, spec.population.size
    rewards = rewards_of(session, experiment, update)
    if spec.method.name == "es":
        seeds = es_seeds(spec.population.seed, update, size)
        return es_step(seeds, rewards, settings.rate)
    seed, epsilon = step_seed(spec.population.seed, update), spec.method.radius
    if not experiment.generator_digest:
        return mezo_step(seed, *rewards, epsilon=epsilon, rate=settings.rate)
    plus = session.get_one(Candidate, (experiment.id, update * size))
    scale = plus.normaliser or 1.0
    raw = [one / (epsilon * scale) for one in plus.descriptor.coefficients or ()]
    return zo_step(seed, *rewards, raw=raw, scale=scale, epsilon=epsilon, rate=settings.rate)
