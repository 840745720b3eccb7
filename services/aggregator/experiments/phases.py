"""Transitions from one phase to the next, in the transaction that ends the last job of a phase.

All functions work inside a caller's write transaction that has locked the experiment.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict

from sqlmodel import Session, col, func, select

from modnorm.errors import IncompatibleError, InvalidInputError, PreconditionError
from modnorm.search.answers import BASE_INDEX
from modnorm.search.ranking import Selection, expert_union, select_experts
from modnorm.search.voting import Ballot, count_votes
from modnorm.services.aggregator.experiments.iterative_updates import (
    final_candidates,
    first_batch,
    next_batch,
    reported_updates,
)
from modnorm.services.aggregator.experiments.lifecycle import (
    Batch,
    PhaseProgress,
    add_jobs,
    end,
    fail,
    record,
)
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.lookups import load_rows
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Ensemble,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Split,
    Vote,
    state_index,
)
from modnorm.tasks import task_errors
from modnorm.wire.answer_sheets import unpack_answers

_ASKED = {Split.HELDOUT: "held-out rows", Split.QUESTIONS: "questions"}
_SHEETS = 64
"""Answer sheets read from Postgres at once. Postgres aborts a transaction whose process computes
for too long between two statements, as it would with a thousand sheets."""


def start_selecting(session: Session, experiment: Experiment, candidates: Collection[int]) -> None:
    if experiment.is_iterative:
        batch, message = first_batch(session, experiment)
    else:
        batch = {Split.SELECTION: candidates}
        message = f"scoring the base and {len(candidates) - 1} candidates"
    _begin(session, experiment, ExperimentState.SELECTING, batch, message)


def start_answering(session: Session, experiment: Experiment) -> None:
    """Begin the answers of the experts of a finished run to questions."""
    batch = {Split.QUESTIONS: experiment.asked_experts}
    message = f"{len(experiment.asked_experts)} experts answer {experiment.heldout_rows} questions"
    _begin(session, experiment, ExperimentState.VOTING, batch, message)


def job_ended(
    session: Session,
    experiment: Experiment,
    job: Job,
    message: str,
    *,
    progress: PhaseProgress | None = None,
) -> bool:
    """Record that a job is done or has failed; after the last job, start the next phase.

    The progress, if passed, already counts the job in its new state. Return whether jobs became
    pending.
    """
    record(session, experiment, message, progress)
    if job.state is JobState.FAILED and (reason := _fatal_reason(session, experiment, job)):
        fail(session, experiment, reason, remedy=job.remedy)
    elif not experiment.has_open_jobs:
        _finish_phase(session, experiment)
        return experiment.has_open_jobs
    return False


def _fatal_reason(session: Session, experiment: Experiment, job: Job) -> str | None:
    """Return why a failed job ends its experiment; None if the experiment continues."""
    if job.candidate < BASE_INDEX:
        return f"the state after {BASE_INDEX - job.candidate} updates failed: {job.error}"
    if job.candidate == BASE_INDEX:
        return f"the unperturbed model could not be evaluated: {job.error}"
    if job.split in _ASKED:
        return f"expert {job.candidate} could not answer the {_ASKED[job.split]}: {job.error}"
    count = select(func.count()).where(
        Job.experiment_id == experiment.id,
        Job.split == Split.SELECTION,
        Job.state == JobState.FAILED,
    )
    failed = session.exec(count).one()  # in all updates of an iterative run
    allowed = experiment.spec.failures.max_failed_candidates
    if failed <= allowed:
        return None
    return (
        f"{failed} candidates failed, {allowed} may fail (failures.max_failed_candidates); "
        f"the last was candidate {job.candidate}: {job.error}"
    )


def _finish_phase(session: Session, experiment: Experiment) -> None:
    """Select the experts after the selection, vote after the held-out answers."""
    session.flush()
    try:
        if experiment.asked_experts:  # its files hold the votes
            end(session, experiment, ExperimentState.SUCCEEDED, "answered")
        elif experiment.state is ExperimentState.VOTING:
            _finish(session, experiment)
        elif experiment.is_iterative:
            _continue_updates(session, experiment)
        else:
            experts = expert_union(_selection_of(session, experiment))
            batch: Batch = {Split.HELDOUT: (BASE_INDEX, *experts)}
            message = f"selected: {len(experts)} experts and the base answer the held-out rows"
            _begin(session, experiment, ExperimentState.VOTING, batch, message)
    except (InvalidInputError, PreconditionError, IncompatibleError) as error:
        fail(session, experiment, error.reason, remedy=error.remedy or "")
    except ArithmeticError as error:
        # Retries would fail for the same reported values and block the experiment.
        fail(session, experiment, f"the reported figures cannot be computed with: {error}")


def _continue_updates(session: Session, experiment: Experiment) -> None:
    """Open the next batch of an iterative run; after the last, begin the held-out phase."""
    while not experiment.has_open_jobs:
        following = next_batch(session, experiment)
        if following is None:
            final: Batch = {Split.HELDOUT: final_candidates(session, experiment)}
            reported = reported_updates(session, experiment)
            message = f"the state after {reported} updates is reported"
            _begin(session, experiment, ExperimentState.VOTING, final, message)
            return
        batch, message = following
        remark = _open(session, experiment, batch)
        if message:
            record(session, experiment, message + remark)


def _begin(
    session: Session, experiment: Experiment, state: ExperimentState, batch: Batch, message: str
) -> None:
    """Begin a phase. Reused results may already finish it."""
    remark = _open(session, experiment, batch)
    record(session, experiment, message + remark, state=state)
    if not experiment.has_open_jobs:
        _finish_phase(session, experiment)


def _open(session: Session, experiment: Experiment, batch: Batch) -> str:
    """Store the jobs of a batch; return a remark on reused results."""
    reused = add_jobs(session, experiment, batch)
    return f"; {reused} results are reused" if reused else ""


def _finish(session: Session, experiment: Experiment) -> None:
    if experiment.is_iterative:  # the reported state is its one expert
        drawn = experiment.updates_done * experiment.spec.population.size
        reported = state_index(reported_updates(session, experiment))
        selection: Selection = {(drawn, 1): (reported,)}
    else:
        selection = _selection_of(session, experiment)
    ballots = dict(_ballots_of(session, experiment))
    task = experiment.task()
    rows = load_rows(session, experiment.heldout_digest)
    with session.begin_nested():  # an error removes the votes again
        # Stored one by one: all votes could fill the memory and take longer than Postgres waits.
        for (population, size), experts in selection.items():
            counted = count_votes([ballots[expert] for expert in experts])
            correct = [vote.correct for vote in counted]
            key = {"experiment_id": experiment.id, "population": population, "ensemble_size": size}
            ensemble = {
                **key,
                "experts": json.dumps(experts),
                "metric": task_errors.metric(task, rows, correct),
                "correct": sum(correct),
                "rows": len(rows),
            }
            insert_rows(session, Ensemble, [ensemble])
            votes = ({**key, "row": row, **asdict(vote)} for row, vote in enumerate(counted))
            insert_rows(session, Vote, votes)
    end(session, experiment, ExperimentState.SUCCEEDED, "finished")


def _selection_of(session: Session, experiment: Experiment) -> Selection:
    """Return the experts of every (N, K), by the scores of the selection."""
    population = experiment.spec.population
    rewards: list[float | None] = [None] * population.size
    scored = session.exec(
        select(Job.candidate, Job.metric).where(
            Job.experiment_id == experiment.id,
            Job.split == Split.SELECTION,
            Job.state == JobState.DONE,
            Job.candidate != BASE_INDEX,
        )
    )
    for candidate, reward in scored:
        rewards[candidate] = reward
    return select_experts(rewards, population.reported_prefixes, population.ensemble_sizes)


def _ballots_of(session: Session, experiment: Experiment) -> Iterator[tuple[int, Ballot]]:
    """Yield candidate and ballot of each model that has answered, in ascending order."""
    sheets = (
        select(Job.candidate, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(
            Job.experiment_id == experiment.id,
            Job.split == Split.HELDOUT,
            Job.state == JobState.DONE,
        )
        .order_by(col(Job.candidate))
        .execution_options(yield_per=_SHEETS)
    )
    for candidate, content in session.exec(sheets):
        yield candidate, Ballot.from_answers(unpack_answers(content))
