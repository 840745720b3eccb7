"""Who is selected, and what experts say, from what is stored."""

from collections.abc import Collection, Iterator

from sqlmodel import Session, col, select

from modnorm.search.ballots import Ballot
from modnorm.search.ranking import Selection, select_experts
from services.aggregator.codec import unpack_answers
from services.aggregator.lifecycle import spec_of
from services.aggregator.states import BASE_INDEX, JobState, Split
from services.aggregator.tables import AnswerSheet, Experiment, Job

_SHEETS = 64
"""Answer sheets that are read from Postgres at a time: a transaction in which a thousand are
counted before the next statement looks as if whoever counts had stopped."""


def selection_of(session: Session, experiment: Experiment) -> Selection:
    """Return the experts of every (N, K); the selection is over.

    Raises:
        PreconditionError: fewer than K candidates of a prefix have a score.
        InvalidInputError: a score is not finite.
    """
    population = spec_of(experiment).population
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


def ballot_of(session: Session, experiment: Experiment, candidate: int) -> Ballot:
    """Return what one candidate, the base perhaps, says that has answered all held-out rows."""
    content = session.exec(
        select(AnswerSheet.content)
        .join(Job, col(AnswerSheet.job_id) == col(Job.id))
        .where(
            Job.experiment_id == experiment.id,
            Job.split == Split.HELDOUT,
            Job.candidate == candidate,
        )
    ).one()
    answers = {answer.row: answer for answer in unpack_answers(content)}
    return Ballot.of_some(answers, experiment.heldout_rows)


def ballots_of(
    session: Session, experiment: Experiment, *, but: Collection[int] = ()
) -> Iterator[tuple[int, Ballot]]:
    """Yield what the experts say that have answered the held-out rows, by candidate.

    Args:
        session: The transaction.
        experiment: The experiment.
        but: Candidates that are not wanted.
    """
    sheets = (
        select(Job.candidate, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(
            Job.experiment_id == experiment.id,
            Job.split == Split.HELDOUT,
            Job.state == JobState.DONE,
            Job.candidate != BASE_INDEX,
            col(Job.candidate).not_in(but),
        )
    )
    if not but:  # all of them; beside those that are known they are few, and claims wait for them
        sheets = sheets.execution_options(yield_per=_SHEETS)
    for candidate, content in session.exec(sheets):
        answers = {answer.row: answer for answer in unpack_answers(content)}
        yield candidate, Ballot.of_some(answers, experiment.heldout_rows)
