"""What an experiment takes over from one of the same work that ended before its time.

An experiment that failed or was cancelled stays as it is. Submitted again, its spec is another
experiment; but a candidate is a function of its descriptor, so what was finished is not done
again: its results are copied, with the worker and the environment that they are from. Where the
new one has full statistics, one that left out what changes no expert and no vote has ended before
its time, too, even where it succeeded.

All functions work inside a caller's write transaction that has locked the experiment.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

from sqlalchemy import func
from sqlmodel import Session, col, select

from modnorm.search.stopping import Bars
from modnorm.spec import ExperimentSpec, PopulationSpec
from services.aggregator.copies import Pair, common_jobs, copy_results
from services.aggregator.election import selection_of
from services.aggregator.lifecycle import spec_of
from services.aggregator.states import ExperimentState, JobState, Split
from services.aggregator.tables import Candidate, Experiment, Job

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

_Holds = Callable[[Pair], bool]


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
    session.flush()
    holds = _what_holds(session, experiment, predecessor, split)
    taken = 0
    for pairs in common_jobs(session, experiment.id, predecessor, split):
        valid = [pair for pair in pairs if holds(pair)]
        copy_results(session, valid)
        taken += len(valid)
        experiment.candidates_stopped += sum(pair.upper is not None for pair in valid)
    experiment.jobs_done += taken
    session.flush()
    _read_again(session, experiment)
    return f"{taken} results are taken over from experiment {predecessor}" if taken else None


def _what_holds(
    session: Session, experiment: Experiment, predecessor: str, split: Split
) -> _Holds:
    """Return what tells whether a result of the predecessor holds here too; complete ones do."""
    population = spec_of(experiment).population
    if population.statistics == "full":
        return _is_complete
    common = partial(common_jobs, session, experiment.id, predecessor, split)
    if split is Split.SELECTION:
        return _holds_by(population, common())
    whole = sum(map(len, common())) == _finished(session, predecessor, split)
    if whole and _same_experts(session, experiment, predecessor):
        return lambda _pair: True
    return _is_complete


def _is_complete(pair: Pair) -> bool:
    return pair.metric is not None


def _holds_by(population: PopulationSpec, common: Iterable[Sequence[Pair]]) -> _Holds:
    """Return what tells whose scores hold.

    Complete ones do, and of those of candidates that were stopped early the ones that are out by
    the complete scores which are taken over with them.
    """
    bars = Bars(population.reported_prefixes, population.ensemble_sizes[-1])
    for pair in chain.from_iterable(common):
        if pair.metric is not None:
            bars.complete(pair.candidate, pair.metric)

    def holds(pair: Pair) -> bool:
        if pair.metric is not None or pair.upper is None:
            return pair.metric is not None
        bar = bars.of(pair.candidate)
        return bar is not None and bar.shuts_out(pair.upper, pair.candidate)

    return holds


def _finished(session: Session, experiment_id: str, split: Split) -> int:
    """Count the jobs of a phase that are done."""
    count = select(func.count()).where(
        Job.experiment_id == experiment_id, Job.split == split, Job.state == JobState.DONE
    )
    return session.exec(count).one()


def _read_again(session: Session, experiment: Experiment) -> None:
    """Read again the few jobs and candidates that the session holds as objects."""
    for one in session.identity_map.values():
        if isinstance(one, Job | Candidate) and one.experiment_id == experiment.id:
            session.refresh(one)


def _same_experts(session: Session, experiment: Experiment, predecessor: str) -> bool:
    """Tell whether the predecessor selected the same experts.

    Where it did not, rows that were left out there may be needed here.
    """
    other = session.get_one(Experiment, predecessor)
    return selection_of(session, other) == selection_of(session, experiment)


def _predecessor(session: Session, experiment: Experiment, split: Split) -> str | None:
    """Return the experiment of the same work that got furthest, of those that ended early."""
    conditions = {name: getattr(experiment, name) for name in _CONDITIONS}
    spec = spec_of(experiment)
    full = spec.population.statistics == "full"
    states = (*_ENDED_EARLY, ExperimentState.SUCCEEDED) if full else _ENDED_EARLY
    ended = session.exec(
        select(Experiment).where(col(Experiment.state).in_(states)).filter_by(**conditions)
    ).all()
    alike = [other.id for other in ended if _precedes(other, spec)]
    done = func.count(col(Job.metric)) if full else func.count()
    furthest = session.exec(
        select(Job.experiment_id)
        .where(col(Job.experiment_id).in_(alike), Job.split == split, Job.state == JobState.DONE)
        .group_by(col(Job.experiment_id))
        .order_by(done.desc(), col(Job.experiment_id))
    )
    return furthest.first()


def _precedes(other: Experiment, spec: ExperimentSpec) -> bool:
    """Tell whether an experiment that ended left something to do of a spec's work."""
    found = spec_of(other)
    left_out = found.population.statistics != spec.population.statistics
    return spec.takes_over_from(found) and (other.state in _ENDED_EARLY or left_out)
