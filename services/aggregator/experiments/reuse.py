"""Reuse of the results of an equal experiment that ended early.

A failed or cancelled experiment stays ended. Its spec, submitted again, is a new experiment. A
candidate is a function of its descriptor, so finished results are copied with their worker and
environment. An experiment with full statistics also reuses the results of a succeeded experiment
that skipped work.

All functions work inside a caller's write transaction that has locked the experiment.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from sqlalchemy import bindparam, insert, update
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, func, select

from modnorm.search.stopping import Thresholds
from modnorm.services.aggregator.experiments.expert_selection import selection_of
from modnorm.services.aggregator.storage.states import ExperimentState, JobState, Purpose, Split
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job
from modnorm.spec import ExperimentSpec, PopulationSpec

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
    "prompts_digest",
    "purpose",
    "temperature",
    "top_p",
    "sampling_seed",
)
"""Columns besides the spec that must be equal for answers to be reused."""
_AT_A_TIME = 1_000
"""Candidates compared by one statement. Postgres would plan a statement about all candidates with
statistics from before they were stored, and could read all of them for each."""
_DESCRIPTOR = ("noise", "seed", "method", "radius", "scale_map_digest", "lineage")
_RESULT = (
    "attempts",
    "worker",
    "metric",
    "reward_lower",
    "reward_upper",
    "answers_done",
    "correct",
    "valid",
    "truncated",
    "tokens",
    "switch_seconds",
    "generate_seconds",
    "score_seconds",
    "environment",
)
"""Columns that a report sets on its job."""

_JOBS, _CANDIDATES, _SHEETS = (
    Job.metadata.tables[name] for name in ("jobs", "candidates", "answers")
)
_MINE, _DONE = _JOBS.alias("mine"), _JOBS.alias("done")
_OURS, _THEIRS = _CANDIDATES.alias("ours"), _CANDIDATES.alias("theirs")
_TARGET, _SOURCE = (bindparam(name, type_=_JOBS.c.id.type) for name in ("target", "source"))
_COPY_STATEMENTS = (
    insert(_SHEETS).from_select(
        ["job_id", "content"],
        select_columns(_TARGET, _SHEETS.c.content).where(_SHEETS.c.job_id == _SOURCE),
    ),
    update(_CANDIDATES)
    .where(
        _MINE.c.id == _TARGET,
        _DONE.c.id == _SOURCE,
        _CANDIDATES.c.experiment_id == _MINE.c.experiment_id,
        _CANDIDATES.c.index == _MINE.c.candidate,
        _THEIRS.c.experiment_id == _DONE.c.experiment_id,
        _THEIRS.c.index == _CANDIDATES.c.index,
    )
    .values(coefficients=_THEIRS.c.coefficients, normaliser=_THEIRS.c.normaliser),
    update(_JOBS)
    .where(_JOBS.c.id == _TARGET, _DONE.c.id == _SOURCE, _DONE.c.candidate == _JOBS.c.candidate)
    .values(state=JobState.DONE, lease_deadline=None, **{one: _DONE.c[one] for one in _RESULT}),
)
"""Copy the answers, the coefficients and the result of one job to another."""


class Pair(NamedTuple):
    """A pending job, and a finished job with an equal descriptor and equal rows."""

    candidate: int
    job: str
    source: str
    metric: float | None
    """Metric of the finished job."""
    upper: float | None
    """Upper bound of the finished job's reward if it was stopped early."""


_IsValid = Callable[[Pair], bool]


def reuse_results(session: Session, experiment: Experiment, split: Split) -> str | None:
    """Finish the jobs of a phase that a predecessor has finished; all its jobs are pending.

    Returns:
        A remark on the reuse; None if no result is reused.
    """
    predecessor = _predecessor(session, experiment, split)
    if predecessor is None:
        evaluation = _evaluation(session, experiment) if split is Split.HELDOUT else None
        return _reuse_base(session, experiment, evaluation) if evaluation else None
    session.flush()
    is_valid = _validity(session, experiment, predecessor, split)
    reused = 0
    for pairs in common_jobs(session, experiment.id, predecessor, split):
        valid = [pair for pair in pairs if is_valid(pair)]
        _copy_results(session, valid)
        reused += len(valid)
        experiment.candidates_stopped += sum(pair.upper is not None for pair in valid)
    experiment.jobs_done += reused
    session.flush()
    _refresh(session, experiment)
    return f"{reused} results are reused from experiment {predecessor}" if reused else None


def _reuse_base(session: Session, experiment: Experiment, evaluation: str) -> str | None:
    """Copy the held-out answers of the base from an evaluation of the same model."""
    session.flush()
    pairs = [
        pair
        for pairs in common_jobs(session, experiment.id, evaluation, Split.HELDOUT)
        for pair in pairs
        if _is_complete(pair)
    ]
    _copy_results(session, pairs)
    experiment.jobs_done += len(pairs)
    session.flush()
    _refresh(session, experiment)
    return "the base has answered before" if pairs else None


def _evaluation(session: Session, experiment: Experiment) -> str | None:
    """Return the evaluation of the model that a distillation's search perturbs."""
    if not experiment.parent_id or experiment.purpose is not Purpose.SEARCH:
        return None
    same = (
        "tenant",
        "model_digest",
        "scorer",
        "max_tokens",
        "heldout_digest",
        "prompts_digest",
    )
    evaluations = session.exec(
        select(Experiment)
        .where(
            Experiment.purpose == Purpose.EVALUATION,
            Experiment.state == ExperimentState.SUCCEEDED,
        )
        .filter_by(**{name: getattr(experiment, name) for name in same})
        .order_by(col(Experiment.create_time), col(Experiment.id))
    )
    engine = experiment.spec.engine
    return next((one.id for one in evaluations if one.spec.engine == engine), None)


def common_jobs(
    session: Session, experiment_id: str, predecessor: str, split: Split
) -> Iterator[Sequence[Pair]]:
    """Yield pending jobs with the predecessor's finished jobs, in order and in chunks."""
    pending = session.exec(
        select(Job.candidate)
        .where(
            Job.experiment_id == experiment_id,
            Job.split == split,
            Job.state == JobState.PENDING,
        )
        .order_by(col(Job.candidate))
    ).all()
    for start in range(0, len(pending), _AT_A_TIME):
        chunk = pending[start : start + _AT_A_TIME]
        yield list(_pairs(session, (experiment_id, predecessor), split, chunk))


def _pairs(
    session: Session, experiments: tuple[str, str], split: Split, chunk: Sequence[int]
) -> Iterator[Pair]:
    """Yield the pairs of one chunk of candidates.

    The query does not compare states. Otherwise Postgres may look up each job by the ranking
    index, which contains the state, and read all jobs of an experiment.
    """
    mine, theirs = experiments
    query = (
        select_columns(
            _MINE.c.candidate,
            _MINE.c.id,
            _DONE.c.id,
            _DONE.c.metric,
            _DONE.c.reward_upper,
            _MINE.c.state,
            _DONE.c.state,
        )
        .where(
            _MINE.c.experiment_id == mine,
            _DONE.c.experiment_id == theirs,
            _MINE.c.split == split,
            _DONE.c.split == split,
            *(one.c.candidate.between(chunk[0], chunk[-1]) for one in (_MINE, _DONE)),
            *(one.c.index.between(chunk[0], chunk[-1]) for one in (_OURS, _THEIRS)),
            _DONE.c.candidate == _MINE.c.candidate,
            _OURS.c.experiment_id == _MINE.c.experiment_id,
            _OURS.c.index == _MINE.c.candidate,
            _THEIRS.c.experiment_id == _DONE.c.experiment_id,
            _THEIRS.c.index == _DONE.c.candidate,
            *(_OURS.c[name] == _THEIRS.c[name] for name in _DESCRIPTOR),
        )
        .order_by(_MINE.c.candidate)
    )
    for *pair, state, other_state in session.execute(query):
        if state is JobState.PENDING and other_state is JobState.DONE:
            yield Pair(*pair)


def _copy_results(session: Session, pairs: Sequence[Pair]) -> None:
    """Finish pending jobs with copies of finished jobs' results."""
    rows = [{"target": pair.job, "source": pair.source} for pair in pairs]
    for statement in _COPY_STATEMENTS if rows else ():
        session.connection().execute(statement, rows)


def _validity(
    session: Session, experiment: Experiment, predecessor: str, split: Split
) -> _IsValid:
    """Return the predicate whether a result of the predecessor is valid for the experiment."""
    population = experiment.spec.population
    if population.statistics == "full":
        return _is_complete
    common = partial(common_jobs, session, experiment.id, predecessor, split)
    if split is Split.SELECTION:
        return _validity_of_scores(population, common())
    whole = sum(map(len, common())) == _count_finished(session, predecessor, split)
    if whole and _same_experts(session, experiment, predecessor):
        return lambda _pair: True
    return _is_complete


def _is_complete(pair: Pair) -> bool:
    return pair.metric is not None


def _validity_of_scores(population: PopulationSpec, common: Iterable[Sequence[Pair]]) -> _IsValid:
    """Return the predicate whether a score is valid.

    Complete scores are valid. The interval of a candidate that was stopped early is valid if the
    reused complete scores exclude the candidate.
    """
    thresholds = Thresholds(population.reported_prefixes, population.ensemble_sizes[-1])
    for pair in chain.from_iterable(common):
        if pair.metric is not None:
            thresholds.add(pair.candidate, pair.metric)

    def is_valid(pair: Pair) -> bool:
        if pair.metric is not None or pair.upper is None:
            return pair.metric is not None
        threshold = thresholds.of(pair.candidate)
        return threshold is not None and threshold.excludes(pair.upper, pair.candidate)

    return is_valid


def _count_finished(session: Session, experiment_id: str, split: Split) -> int:
    count = select(func.count()).where(
        Job.experiment_id == experiment_id, Job.split == split, Job.state == JobState.DONE
    )
    return session.exec(count).one()


def _refresh(session: Session, experiment: Experiment) -> None:
    """Reload the few jobs and candidates that the session holds as objects."""
    for row in list(session.identity_map.values()):
        if isinstance(row, Job | Candidate) and row.experiment_id == experiment.id:
            session.refresh(row)


def _same_experts(session: Session, experiment: Experiment, predecessor: str) -> bool:
    """Return whether the predecessor selected the same experts.

    With other experts, rows that the predecessor skipped may be needed.
    """
    other = session.get_one(Experiment, predecessor)
    return selection_of(session, other) == selection_of(session, experiment)


def _predecessor(session: Session, experiment: Experiment, split: Split) -> str | None:
    """Return the equal experiment that ended early with the most finished jobs."""
    conditions = {name: getattr(experiment, name) for name in _CONDITIONS}
    full = experiment.spec.population.statistics == "full"
    states = (*_ENDED_EARLY, ExperimentState.SUCCEEDED) if full else _ENDED_EARLY
    ended = session.exec(
        select(Experiment).where(col(Experiment.state).in_(states)).filter_by(**conditions)
    ).all()
    alike = [other.id for other in ended if _precedes(other, experiment.spec)]
    done = func.count(col(Job.metric)) if full else func.count()
    by_progress = session.exec(
        select(Job.experiment_id)
        .where(col(Job.experiment_id).in_(alike), Job.split == split, Job.state == JobState.DONE)
        .group_by(col(Job.experiment_id))
        .order_by(done.desc(), col(Job.experiment_id))
    )
    return by_progress.first()


def _precedes(other: Experiment, spec: ExperimentSpec) -> bool:
    """Return whether a spec can reuse an ended experiment that left work unfinished."""
    skipped_work = other.spec.population.statistics != spec.population.statistics
    return spec.can_reuse(other.spec) and (other.state in _ENDED_EARLY or skipped_work)
