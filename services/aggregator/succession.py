"""What an experiment takes over from one of the same work that ended before its time.

An experiment that failed or was cancelled stays as it is. Submitted again, its spec is another
experiment; but a candidate is a function of its descriptor, so what was finished is not done
again: its results are copied, with the worker and the environment that they are from.

All functions work inside a caller's write transaction that has locked the experiment.
"""

from collections.abc import Collection, Mapping

from sqlalchemy import func, insert, literal
from sqlalchemy import select as plain_select
from sqlmodel import Session, col, select

from modnorm.search.stopping import Bars
from services.aggregator.election import selection_of
from services.aggregator.lifecycle import close_job, spec_of
from services.aggregator.states import ExperimentState, JobState, Split
from services.aggregator.tables import AnswerSheet, Candidate, Experiment, Job

_ENDED_EARLY = (ExperimentState.FAILED, ExperimentState.CANCELLED)
_CONDITIONS = (
    "tenant",
    "model_digest",
    "scorer",
    "max_tokens",
    "selection_digest",
    "heldout_digest",
    "development_digest",
    "generator_digest",
)
"""What experiments share, beside the spec, when an answer of one is an answer of the other."""
_DESCRIPTOR = ("noise", "seed", "method", "radius", "scale_map_digest", "lineage")
_RESULT = (
    "attempts",
    "worker",
    "answers_done",
    "correct",
    "metric",
    "reward_lower",
    "reward_upper",
    "tokens",
    "switch_seconds",
    "generate_seconds",
    "score_seconds",
    "environment",
)
"""What a job that is done records of its result."""


def take_over(session: Session, experiment: Experiment, split: Split) -> str | None:
    """Finish the jobs of a phase whose results a predecessor has.

    Args:
        session: The transaction.
        experiment: The experiment, whose jobs of the phase are all pending.
        split: The phase.

    Returns:
        A remark for people; None when there is nothing to take over.
    """
    predecessor = _predecessor(session, experiment, split)
    if predecessor is None:
        return None
    full = spec_of(experiment).population.statistics == "full"
    pending = _jobs(session, experiment.id, split, JobState.PENDING)
    # Of an iterative run a phase is one of many batches: each looks at its own candidates only.
    wanted = pending if full else None
    finished = _jobs(session, predecessor, split, JobState.DONE, among=wanted)
    common = {
        index: (*pending[index], *found)
        for index, found in finished.items()
        if index in pending and _same_descriptor(pending[index][0], found[0])
    }
    if full:
        valid = {index for index, (*_, job) in common.items() if job.metric is not None}
    elif split is Split.SELECTION:
        valid = _valid_scores(experiment, {index: job for index, (*_, job) in common.items()})
    else:
        whole = len(common) == len(finished) and _same_experts(session, experiment, predecessor)
        valid = {i for i, (*_, job) in common.items() if whole or job.metric is not None}
    for index in sorted(valid):
        candidate, job, there, done = common[index]
        candidate.coefficients = there.coefficients
        candidate.normaliser = there.normaliser
        _copy_result(session, done, job)
        experiment.candidates_stopped += done.reward_upper is not None
        close_job(experiment, job, done=True)
    session.flush()
    return f"{len(valid)} results are taken over from experiment {predecessor}" if valid else None


def _valid_scores(experiment: Experiment, done: Mapping[int, Job]) -> set[int]:
    """Return whose results hold.

    Those with complete scores do, and of those that were stopped early the ones that are out by
    the complete scores which are taken over with them.
    """
    population = spec_of(experiment).population
    bars = Bars(population.reported_prefixes, population.ensemble_sizes[-1])
    complete = {index: job.metric for index, job in done.items() if job.metric is not None}
    for index, score in complete.items():
        bars.complete(index, score)
    stopped = {i: job.reward_upper for i, job in done.items() if job.reward_upper is not None}
    out = {
        index
        for index, upper in stopped.items()
        if (bar := bars.of(index)) is not None and bar.shuts_out(upper, index)
    }
    return {*complete, *out}


def _same_experts(session: Session, experiment: Experiment, predecessor: str) -> bool:
    """Tell whether the predecessor selected the same experts.

    Where it did not, rows that were left out there may be needed here.
    """
    other = session.get_one(Experiment, predecessor)
    return selection_of(session, other) == selection_of(session, experiment)


def _predecessor(session: Session, experiment: Experiment, split: Split) -> str | None:
    """Return the experiment of the same work that got furthest, of those that ended early."""
    conditions = {name: getattr(experiment, name) for name in _CONDITIONS}
    ended = session.exec(
        select(Experiment).where(col(Experiment.state).in_(_ENDED_EARLY)).filter_by(**conditions)
    ).all()
    work = spec_of(experiment).work
    alike = [other.id for other in ended if spec_of(other).work == work]
    done = func.count()
    furthest = session.exec(
        select(Job.experiment_id)
        .where(col(Job.experiment_id).in_(alike), Job.split == split, Job.state == JobState.DONE)
        .group_by(col(Job.experiment_id))
        .order_by(done.desc(), col(Job.experiment_id))
    )
    return furthest.first()


def _jobs(
    session: Session,
    experiment_id: str,
    split: Split,
    state: JobState,
    *,
    among: Collection[int] | None = None,
) -> dict[int, tuple[Candidate, Job]]:
    """Return candidates with their job of a phase, by index, where it is in a state.

    Args:
        session: The transaction.
        experiment_id: Whose.
        split: The phase.
        state: That of the jobs.
        among: Only those from the first to the last of these; all when absent.
    """
    query = (
        select(Candidate, Job)
        .join(
            Job,
            (col(Job.experiment_id) == col(Candidate.experiment_id))
            & (col(Job.candidate) == col(Candidate.index)),
        )
        .where(Candidate.experiment_id == experiment_id, Job.split == split, Job.state == state)
    )
    if among is not None:
        first, last = min(among, default=0), max(among, default=-1)
        query = query.where(col(Candidate.index).between(first, last))
    return {candidate.index: (candidate, job) for candidate, job in session.exec(query)}


def _same_descriptor(one: Candidate, other: Candidate) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _DESCRIPTOR)


def _copy_result(session: Session, done: Job, job: Job) -> None:
    """Copy what a job records and, inside the database, its answers."""
    for name in _RESULT:
        setattr(job, name, getattr(done, name))
    sheet = plain_select(literal(job.id), col(AnswerSheet.content)).where(
        col(AnswerSheet.job_id) == done.id
    )
    session.exec(insert(AnswerSheet).from_select(["job_id", "content"], sheet))
