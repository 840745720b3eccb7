"""Rounds of a distillation with their results, as clients read them."""

from collections.abc import Mapping, Sequence

from sqlmodel import Session, col, func, select

from modnorm.services.aggregator.experiments.records import RoundRecord
from modnorm.services.aggregator.storage.lookups import rounds_of
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Experiment, Job, Round


def round_records(session: Session, experiment: Experiment) -> Sequence[RoundRecord]:
    """Return the rounds of a distillation so far; none for other experiments."""
    if not experiment.is_distillation:
        return ()
    parts = rounds_of(session, experiment.id)
    children = [child for part in parts for child in _children(part)]
    spent = _spent(session, children)
    evaluated = _evaluated(session, [part.evaluation_id for part in parts])
    return [_record(part, spent, evaluated) for part in parts]


def _record(
    part: Round,
    spent: Mapping[str, tuple[int, int]],
    evaluated: Mapping[tuple[str, Split], Job],
) -> RoundRecord:
    costs = [spent.get(child, (0, 0)) for child in _children(part)]
    return RoundRecord(
        part=part,
        development=evaluated.get((part.evaluation_id, Split.DEVELOPMENT)),
        heldout=evaluated.get((part.evaluation_id, Split.HELDOUT)),
        answers=sum(answers for answers, _ in costs),
        tokens=sum(tokens for _, tokens in costs),
    )


def _children(part: Round) -> tuple[str, ...]:
    return part.search_id, part.harvest_id, part.evaluation_id


def _spent(session: Session, children: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Return answers and tokens of each part of a distillation."""
    query = (
        select(Job.experiment_id, func.sum(Job.answers_done), func.sum(Job.tokens))
        .where(col(Job.experiment_id).in_(children), Job.state == JobState.DONE)
        .group_by(col(Job.experiment_id))
    )
    return {child: (int(answers), int(tokens)) for child, answers, tokens in session.exec(query)}


def _evaluated(session: Session, evaluations: Sequence[str]) -> Mapping[tuple[str, Split], Job]:
    """Return the finished jobs of evaluations, by experiment and split."""
    query = select(Job).where(col(Job.experiment_id).in_(evaluations), Job.state == JobState.DONE)
    return {(job.experiment_id, job.split): job for job in session.exec(query)}
