"""Read access to results and events: candidates, answers, votes, lineages, artifacts."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.orm import aliased
from sqlmodel import col, select

from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.perturbation.lineage import Lineage
from modnorm.search.voting import Answer
from modnorm.services.aggregator.experiments.expert_selection import answers_of
from modnorm.services.aggregator.experiments.iterative_updates import lineage_of, steps_to
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import find_experiment, load_text
from modnorm.services.aggregator.storage.tables import (
    TERMINAL,
    ArtifactKind,
    Candidate,
    Event,
    Job,
    Split,
    Vote,
)


class CandidateJobs(NamedTuple):
    """A candidate and its jobs."""

    candidate: Candidate
    selection: Job
    heldout: Job | None


class ResultStore:
    """Read access to results."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def candidates(self, experiment_id: str) -> Sequence[CandidateJobs]:
        """Return the candidates in order, the base first."""
        selection, heldout = aliased(Job), aliased(Job)
        query = (
            select(Candidate, selection, heldout)
            .join(
                selection,
                (col(selection.experiment_id) == col(Candidate.experiment_id))
                & (col(selection.candidate) == col(Candidate.index))
                & (col(selection.split) == Split.SELECTION),
            )
            .outerjoin(
                heldout,
                (col(heldout.experiment_id) == col(Candidate.experiment_id))
                & (col(heldout.candidate) == col(Candidate.index))
                & (col(heldout.split) == Split.HELDOUT),
            )
            .where(Candidate.experiment_id == experiment_id)
            .order_by(col(Candidate.index))
        )
        with self._database.read() as session:
            return tuple(CandidateJobs(*row) for row in session.exec(query).all())

    def answers(self, experiment_id: str, candidate: int, split: Split) -> tuple[Answer, ...]:
        """Return the answers of a candidate in row order."""
        with self._database.read() as session:
            find_experiment(session, experiment_id)
            return answers_of(session, experiment_id, split, candidate)

    def votes(self, experiment_id: str, population: int, size: int) -> Sequence[Vote]:
        """Return the votes of an ensemble in row order."""
        query = select(Vote).where(
            Vote.experiment_id == experiment_id,
            Vote.population == population,
            Vote.ensemble_size == size,
        )
        with self._database.read() as session:
            return session.exec(query.order_by(col(Vote.row))).all()

    def lineage(self, experiment_id: str, digest: str | None = None) -> Lineage:
        """Return the lineage of a state of an iterative run, by default of the last state."""
        with self._database.read() as session:
            lineage = lineage_of(session, find_experiment(session, experiment_id))
        return lineage if digest is None else lineage.until(lineage.digests.index(digest))

    def steps(self, experiment_id: str, digest: str, after: int) -> tuple[str, list[str]]:
        """Return the origin of an iterative run and its steps to a state, as JSON texts."""
        with self._database.read() as session:
            experiment = find_experiment(session, experiment_id)
            steps = steps_to(session, experiment, digest, after)
        if steps is None:
            raise NotFoundError("the experiment has no such state", field="digest")
        return steps

    def artifact(self, digest: str, kind: ArtifactKind) -> str:
        with self._database.read() as session:
            return load_text(session, kind, digest)

    def events(self, experiment_id: str, cursor: int, limit: int) -> tuple[Sequence[Event], bool]:
        """Return the next events, and whether the last of them ended the experiment.

        `cursor` is that of the last event that the caller has, 0 for all events.
        """
        with self._database.read() as session:
            experiment = find_experiment(session, experiment_id)
            if not 0 <= cursor <= experiment.last_cursor:
                raise InvalidInputError(
                    f"the cursor must be between 0 and {experiment.last_cursor}", field="cursor"
                )
            events = session.exec(
                select(Event)
                .where(Event.experiment_id == experiment_id, col(Event.cursor) > cursor)
                .order_by(col(Event.cursor))
                .limit(limit)
            ).all()
            last = events[-1].cursor if events else cursor
            return events, experiment.state in TERMINAL and last >= experiment.last_cursor
