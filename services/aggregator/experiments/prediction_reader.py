"""Reads the state and the answers of a prediction while its experts answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlmodel import Session, select

from modnorm.prediction import ranked_votes
from modnorm.prediction.ranked_votes import ExpertAnswer, RankedVotes
from modnorm.services.aggregator.experiments.expert_selection import answers_of
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import find_experiment
from modnorm.services.aggregator.storage.states import ExperimentState, JobState, Split
from modnorm.services.aggregator.storage.tables import Job, Prediction


@dataclass(frozen=True, slots=True)
class Reading:
    """A prediction at one time."""

    state: ExperimentState
    error: str
    remedy: str
    answers_done: int
    answers_total: int
    predictions: Sequence[ranked_votes.Prediction]
    """The predictions since the last reading."""
    complete: bool
    """Whether all predictions have been read."""


class PredictionReader:
    """Reads one prediction while its experts answer; used by one stream.

    It holds the answers to the questions whose vote is open, and no others.
    """

    def __init__(self, database: Database, prediction: Prediction, rows: int) -> None:
        self._database = database
        self._id = prediction.id
        self._rows = rows
        self._total = rows * len(prediction.ranking)
        self._votes = RankedVotes(prediction.ranking, rows, ask_all=prediction.ask_all)

    def read(self) -> Reading:
        """Return the present state, and the predictions since the last call."""
        jobs = select(Job.candidate, Job.state, Job.answers_done).where(
            Job.experiment_id == self._id, Job.split == Split.QUESTIONS
        )
        with self._database.read() as session:
            experiment = find_experiment(session, self._id)
            states = session.exec(jobs).all()
            done = {candidate for candidate, state, _ in states if state is JobState.DONE}
            predictions = tuple(self._predictions(session, done))
        leased = sum(count for _, state, count in states if state is JobState.LEASED)
        return Reading(
            experiment.state,
            experiment.error,
            experiment.remedy,
            len(done) * self._rows + leased,
            self._total,
            predictions,
            complete=self._votes.next_expert is None,
        )

    def _predictions(self, session: Session, done: set[int]) -> Iterator[ranked_votes.Prediction]:
        """Count the experts that have answered, up to the first that has not."""
        while (expert := self._votes.next_expert) is not None and expert in done:
            answers = answers_of(session, self._id, Split.QUESTIONS, expert)
            yield from self._votes.add(
                {
                    each.row: ExpertAnswer(
                        expert, each.vote, each.completion, each.tokens, each.truncated
                    )
                    for each in answers
                }
            )
