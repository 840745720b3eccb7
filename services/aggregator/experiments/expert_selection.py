"""The experts of every (N, K), and their ballots, from stored results."""

from collections.abc import Collection, Iterator

from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.errors import NotFoundError
from modnorm.search.ranking import Selection, select_experts
from modnorm.search.voting import Answer, Ballot
from modnorm.services.aggregator.storage.codec import unpack_answers
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import AnswerSheet, Experiment, Job

_SHEETS = 64
"""Answer sheets read from Postgres at once. Postgres aborts a transaction whose process computes
for too long between two statements, as it would with a thousand sheets."""


def selection_of(session: Session, experiment: Experiment) -> Selection:
    """Return the experts of every (N, K) after the selection, or those that are only asked."""
    population = experiment.spec.population
    if ranking := experiment.ranking:
        return {(population.size, len(ranking)): ranking}
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


def answers_of(
    session: Session, experiment_id: str, split: Split, candidate: int
) -> tuple[Answer, ...]:
    """Return a candidate's answers to the rows of a split, in row order."""
    content = session.exec(
        select(AnswerSheet.content)
        .join(Job, col(AnswerSheet.job_id) == col(Job.id))
        .where(Job.experiment_id == experiment_id, Job.split == split, Job.candidate == candidate)
    ).first()
    if content is None:
        raise NotFoundError(f"candidate {candidate} has no {split} answers", field="candidate")
    return unpack_answers(content)


def ballot_of(session: Session, experiment: Experiment, candidate: int) -> Ballot:
    """Return the ballot of a candidate or of the base."""
    sheet = answers_of(session, experiment.id, Split.HELDOUT, candidate)
    return Ballot.from_partial_answers({one.row: one for one in sheet}, experiment.heldout_rows)


def ballots_of(
    session: Session, experiment: Experiment, *, excluded: Collection[int] = ()
) -> Iterator[tuple[int, Ballot]]:
    """Yield candidate and ballot of each expert that has answered."""
    split = experiment.voted_split
    for candidate, sheet in sheets_of(session, experiment, split, excluded=excluded):
        answers = {one.row: one for one in sheet}
        yield candidate, Ballot.from_partial_answers(answers, experiment.heldout_rows)


def sheets_of(
    session: Session,
    experiment: Experiment,
    split: Split,
    *,
    excluded: Collection[int] = (),
    base: bool = False,
) -> Iterator[tuple[int, tuple[Answer, ...]]]:
    """Yield candidate and answers of each expert, or of the base, to the rows of a split.

    Candidates come in ascending order.
    """
    sheets = (
        select(Job.candidate, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(
            Job.experiment_id == experiment.id,
            Job.split == split,
            Job.state == JobState.DONE,
            (Job.candidate == BASE_INDEX) if base else (Job.candidate != BASE_INDEX),
            col(Job.candidate).not_in(excluded),
        )
        .order_by(col(Job.candidate))
    )
    if not excluded:  # otherwise few are left, and claims wait for them
        sheets = sheets.execution_options(yield_per=_SHEETS)
    for candidate, content in session.exec(sheets):
        yield candidate, unpack_answers(content)
