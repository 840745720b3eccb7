"""From one phase to the next, decided in the transaction that ends the last job of a phase.

All functions work inside a caller's write transaction that has locked the experiment.
"""

import json
from collections.abc import Collection, Sequence

from sqlmodel import Session, func, select

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.ballots import Ballot, RowVote, count_votes
from modnorm.search.ranking import Selection, expert_union
from services.aggregator.artifacts import load_rows
from services.aggregator.election import ballot_of, ballots_of, selection_of
from services.aggregator.lifecycle import (
    add_jobs,
    end,
    has_open_jobs,
    move,
    record,
    spec_of,
    task_of,
)
from services.aggregator.rows import AnyJob, insert_rows
from services.aggregator.standing import Standing
from services.aggregator.states import (
    BASE_INDEX,
    ExperimentState,
    JobState,
    Split,
    state_index,
)
from services.aggregator.succession import take_over
from services.aggregator.tables import Ensemble, Experiment, Job, Vote
from services.aggregator.updates import (
    final_candidates,
    go_on,
    is_iterative,
    reported_updates,
    start_updates,
)

_STATES = {
    Split.SELECTION: ExperimentState.SELECTING,
    Split.HELDOUT: ExperimentState.VOTING,
}
"""Where an experiment is while it waits for the jobs of a split."""


def start_selecting(
    session: Session, experiment: Experiment, candidates: Collection[int], now: float
) -> None:
    """Begin the selection.

    Args:
        session: The transaction.
        experiment: The experiment, locked; its candidates are stored.
        candidates: Their indices, the base's among them.
        now: The time.
    """
    if is_iterative(experiment):
        start_updates(session, experiment, now)
        if not has_open_jobs(experiment):
            _finish_phase(session, experiment, Split.SELECTION, now)
        return
    add_jobs(session, experiment, Split.SELECTION, candidates)
    message = f"scoring the base and {len(candidates) - 1} candidates"
    _begin(session, experiment, Split.SELECTION, message, now)


def job_ended(  # noqa: PLR0913 - what happened, and where
    session: Session,
    experiment: Experiment,
    job: AnyJob,
    message: str,
    now: float,
    *,
    standing: Standing | None = None,
) -> None:
    """Tell that a job is done or failed for good, and move the experiment on if it was the last.

    Args:
        session: The transaction.
        experiment: The experiment, locked.
        job: The job, whose new state is set.
        message: What happened to it.
        now: The time.
        standing: How the phase stands with this job; the database is asked when absent.
    """
    if standing is None:
        session.flush()
    record(session, experiment, message, now, standing)
    if job.state is JobState.FAILED and (reason := _too_much(session, experiment, job)):
        end(session, experiment, ExperimentState.FAILED, reason, now)
    elif not has_open_jobs(experiment):
        _finish_phase(session, experiment, job.split, now)


def _too_much(session: Session, experiment: Experiment, job: AnyJob) -> str | None:
    """Return why an experiment cannot go on after a failed job, if it cannot."""
    if job.candidate < BASE_INDEX:
        return f"the state after {BASE_INDEX - job.candidate} updates failed: {job.error}"
    if job.candidate == BASE_INDEX:
        return f"the unperturbed model could not be evaluated: {job.error}"
    if job.split is Split.HELDOUT:
        return f"expert {job.candidate} could not answer the held-out rows: {job.error}"
    failed = _failed_candidates(session, experiment)
    allowed = spec_of(experiment).failures.max_failed_candidates
    if failed <= allowed:
        return None
    return (
        f"{failed} candidates failed, {allowed} may (failures.max_failed_candidates); "
        f"the last was candidate {job.candidate}: {job.error}"
    )


def _failed_candidates(session: Session, experiment: Experiment) -> int:
    """Count the candidates that failed in selection: those of all updates of an iterative run."""
    count = select(func.count()).where(
        Job.experiment_id == experiment.id,
        Job.split == Split.SELECTION,
        Job.state == JobState.FAILED,
    )
    return session.exec(count).one()


def _finish_phase(session: Session, experiment: Experiment, split: Split, now: float) -> None:
    """Select the experts after the selection, vote after the held-out answers."""
    session.flush()
    try:
        if is_iterative(experiment) and experiment.state is ExperimentState.SELECTING:
            if go_on(session, experiment, now):
                _start_final(session, experiment, now)
        elif split is Split.SELECTION:
            _start_voting(session, experiment, now)
        else:
            _finish(session, experiment, now)
    except (InvalidInputError, PreconditionError) as error:
        end(session, experiment, ExperimentState.FAILED, str(error), now)
    except ArithmeticError as error:
        # Odd figures of a worker: raised again and again, it would leave the experiment stuck.
        reason = f"what was reported cannot be computed with: {error}"
        end(session, experiment, ExperimentState.FAILED, reason, now)


def _start_voting(session: Session, experiment: Experiment, now: float) -> None:
    experts = expert_union(selection_of(session, experiment))
    add_jobs(session, experiment, Split.HELDOUT, (BASE_INDEX, *experts))
    message = f"selected: {len(experts)} experts and the base answer the held-out rows"
    _begin(session, experiment, Split.HELDOUT, message, now)


def _start_final(session: Session, experiment: Experiment, now: float) -> None:
    """Have the held-out rows answered by the state that an iterative run reports."""
    wanted = final_candidates(session, experiment)
    add_jobs(session, experiment, Split.HELDOUT, wanted)
    reported = reported_updates(session, experiment)
    message = f"the state after {reported} updates is reported"
    _begin(session, experiment, Split.HELDOUT, message, now)


def _begin(
    session: Session, experiment: Experiment, split: Split, message: str, now: float
) -> None:
    """Begin a phase whose jobs are stored; it may be over with what is taken over."""
    if remark := take_over(session, experiment, split):
        message = f"{message}; {remark}"
    move(session, experiment, _STATES[split], message, now)
    if not has_open_jobs(experiment):
        _finish_phase(session, experiment, split, now)


def _voters(session: Session, experiment: Experiment) -> tuple[Selection, dict[int, Ballot]]:
    """Return the experts of every (N, K) and what they say; an iterative run has one model."""
    if not is_iterative(experiment):
        return selection_of(session, experiment), dict(ballots_of(session, experiment))
    drawn = experiment.updates_done * spec_of(experiment).population.size
    reported = state_index(reported_updates(session, experiment))
    return {(drawn, 1): (reported,)}, {reported: ballot_of(session, experiment, reported)}


def _finish(session: Session, experiment: Experiment, now: float) -> None:
    selection, ballots = _voters(session, experiment)
    task = task_of(experiment)
    rows = load_rows(session, experiment.heldout_digest)
    # All votes are counted before any is stored: an experiment that fails here keeps none.
    counted: list[tuple[Ensemble, tuple[RowVote, ...]]] = []
    for (population, size), experts in selection.items():
        votes = count_votes([ballots[expert] for expert in experts])
        correct = [vote.correct for vote in votes]
        ensemble = Ensemble(
            experiment_id=experiment.id,
            population=population,
            ensemble_size=size,
            experts=json.dumps(experts),
            metric=task.metric(rows, correct),
            correct=sum(correct),
            rows=len(rows),
        )
        counted.append((ensemble, votes))
    _store_votes(session, counted)
    end(session, experiment, ExperimentState.SUCCEEDED, "finished", now)


def _store_votes(session: Session, counted: Sequence[tuple[Ensemble, Sequence[RowVote]]]) -> None:
    session.add_all(ensemble for ensemble, _ in counted)
    session.flush()
    rows = (
        {
            "experiment_id": ensemble.experiment_id,
            "population": ensemble.population,
            "ensemble_size": ensemble.ensemble_size,
            "row": row,
            "answer": vote.answer,
            "correct": vote.correct,
            "valid": vote.valid,
            "support": vote.support,
            "correct_support": vote.correct_support,
            "skipped": vote.skipped,
        }
        for ensemble, votes in counted
        for row, vote in enumerate(votes)
    )
    insert_rows(session, Vote, rows)
