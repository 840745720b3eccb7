"""Predictions: a finished experiment's ensemble answers new questions.

An equal request is the same prediction. A prediction whose client left is paused as `CANCELLED`;
the next request for it resumes it.
"""

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.prediction.ensemble_definition import (
    check_votes,
    require_equal_prompts,
    select_ensemble,
)
from modnorm.services.aggregator.experiments.lifecycle import Change, add_jobs, end, record
from modnorm.services.aggregator.experiments.prediction_reader import PredictionReader
from modnorm.services.aggregator.experiments.removal import remove_experiment
from modnorm.services.aggregator.storage.codec import pack_text
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import (
    find_experiment,
    lock_experiment,
    pending_jobs,
)
from modnorm.services.aggregator.storage.result_tables import Ensemble
from modnorm.services.aggregator.storage.states import TERMINAL, ExperimentState, JobState, Split
from modnorm.services.aggregator.storage.stored_artifacts import load_rows
from modnorm.services.aggregator.storage.table_statistics import insert_rows
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job, Prediction
from modnorm.tasks import Row, Task
from modnorm.tasks.columns import encode_rows, rows_digest
from modnorm.tasks.row_files import Raw, RawRow
from modnorm.tasks.row_loading import parse_question

KEPT_SECONDS = 24 * 3600.0
"""Seconds after its end or its last request after which a prediction is removed."""
_NAMESPACE = uuid.UUID("0b6e3a52-6f39-5d0f-8e0a-4c1d7a9b2f61")
_PAUSED = (ExperimentState.CANCELLED, ExperimentState.FAILED)


@dataclass(frozen=True, slots=True)
class AskedQuestions:
    """A request for predictions."""

    experiment_id: str
    population: int | None
    """N; None for the largest."""
    ensemble_size: int | None
    """K; None for the largest."""
    questions: Sequence[RawRow]
    ask_all: bool
    """Whether experts also answer questions whose vote is settled."""


class PredictionStore:
    """All predictions."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def open(self, asked: AskedQuestions) -> Change:
        """Store a prediction, or resume the stored one; return its change.

        Raises:
            NotFoundError: there is no such experiment, or it has no such ensemble.
            PreconditionError: the experiment has not succeeded.
            InvalidInputError: it trained one model, or a question breaks the task's schema.
            ConflictError: the task makes other prompts in this version than in the experiment.
        """
        with self._database.read() as session:
            source = find_experiment(session, asked.experiment_id)
            ensemble = _ensemble_of(session, source, asked)
            heldout = load_rows(session, source.heldout_digest)
        task = source.task()
        require_equal_prompts(task, heldout, source.prompts_digest)
        rows = [_parsed(task, place, raw) for place, raw in asked.questions]
        prediction = Prediction(
            id=_id_of(source, ensemble, rows_digest(rows), ask_all=asked.ask_all),
            experts=ensemble.experts,
            ask_all=asked.ask_all,
            questions_digest=rows_digest(rows),
            questions=pack_text("\n".join(encode_rows(rows))),
        )
        try:
            return self._open(source, prediction, len(rows))
        except IntegrityError:  # another call has stored it
            return self._open(source, prediction, len(rows))

    def pause(self, prediction_id: str) -> None:
        """Cancel the open jobs of a prediction that nobody waits for."""
        with self._database.write() as session:
            experiment = lock_experiment(session, prediction_id)
            end(session, experiment, ExperimentState.CANCELLED, "paused", self._clock())

    def reader(self, prediction_id: str) -> PredictionReader:
        """Return a new reader of a prediction."""
        with self._database.read() as session:
            experiment = find_experiment(session, prediction_id)
            prediction = session.get_one(Prediction, prediction_id)
        return PredictionReader(self._database, prediction, experiment.heldout_rows)

    def remove_old(self) -> None:
        """Remove predictions that ended long ago, each in a transaction of its own."""
        limit = self._clock() - KEPT_SECONDS
        query = (
            select(Prediction.id)
            .join(Experiment, col(Experiment.id) == col(Prediction.id))
            .where(col(Experiment.end_time) < limit)
        )
        with self._database.read() as session:
            old = session.exec(query).all()
        for prediction_id in old:
            with self._database.write() as session:
                # `remove_old` may have removed it.
                experiment = session.get(Experiment, prediction_id, with_for_update=True)
                end_time = experiment.end_time if experiment else None
                if end_time is not None and end_time < limit:
                    remove_experiment(session, prediction_id)

    def _open(self, source: Experiment, prediction: Prediction, rows: int) -> Change:
        now = self._clock()
        with self._database.write() as session:
            experiment = session.get(Experiment, prediction.id, with_for_update=True)
            if experiment is None:
                experiment = _store(session, source, prediction, rows, now)
            elif experiment.state in _PAUSED:
                _resume(session, experiment, now)
            elif experiment.state in TERMINAL:
                experiment.end_time = now
                return Change(experiment.id)
            else:
                return Change(experiment.id)
            return Change(experiment.id, _pending_by_rank(session, prediction))


def _ensemble_of(session: Session, source: Experiment, asked: AskedQuestions) -> Ensemble:
    check_votes(source.spec)
    if source.state is not ExperimentState.SUCCEEDED:
        raise PreconditionError(
            f"the experiment is {source.state.lower()}, and only a finished one predicts",
            field="experiment_id",
            remedy="`modnorm watch` waits for its end",
        )
    ensembles = session.exec(select(Ensemble).where(Ensemble.experiment_id == source.id)).all()
    return select_ensemble(ensembles, asked.population, asked.ensemble_size)


def _parsed(task: Task, place: str, raw: Raw) -> Row:
    try:
        return parse_question(task, raw, place)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="questions", remedy=error.remedy) from error


def _id_of(source: Experiment, ensemble: Ensemble, questions_digest: str, *, ask_all: bool) -> str:
    """Return the id of a prediction, a function of its request."""
    voters = (*source.key, ensemble.population, ensemble.ensemble_size)
    return str(uuid.uuid5(_NAMESPACE, json.dumps([*voters, ask_all, questions_digest])))


def _store(
    session: Session, source: Experiment, prediction: Prediction, rows: int, now: float
) -> Experiment:
    """Store a prediction with its work, a copy of the experiment that only votes.

    Raises:
        NotFoundError: the experiment was removed meanwhile.
    """
    lock_experiment(session, source.id)
    experiment = Experiment(
        id=prediction.id,
        tenant=source.tenant,
        request_id="",
        request_key=f"\x1f{prediction.id}",  # differs from those of experiments
        spec_json=source.spec_json,
        spec_digest=source.spec_digest,
        state=ExperimentState.VOTING,
        create_time=now,
        model_digest=source.model_digest,
        scorer=source.scorer,
        max_tokens=source.max_tokens,
        needs_profile=source.needs_profile,
        scale_map_digest=source.scale_map_digest,
        selection_digest=source.selection_digest,
        heldout_digest=prediction.questions_digest,
        selection_rows=source.selection_rows,
        heldout_rows=rows,
    )
    session.add(experiment)
    session.flush()
    experts = session.exec(
        select(Candidate).where(
            Candidate.experiment_id == source.id,
            col(Candidate.index).in_(prediction.ranking),
        )
    )
    copies = [expert.model_dump() | {"experiment_id": experiment.id} for expert in experts]
    insert_rows(session, Candidate, copies)
    session.add(Prediction(**prediction.model_dump()))
    add_jobs(session, experiment, {Split.QUESTIONS: prediction.ranking})
    record(session, experiment, f"{len(copies)} experts answer {rows} questions", now)
    return experiment


def _resume(session: Session, experiment: Experiment, now: float) -> None:
    """Make the unfinished jobs of a paused or failed prediction pending."""
    experiment.state, experiment.end_time = ExperimentState.VOTING, None
    experiment.error = experiment.remedy = ""
    experiment.jobs_failed = 0
    unfinished = (JobState.CANCELLED, JobState.FAILED)
    session.exec(
        update(Job)
        .where(col(Job.experiment_id) == experiment.id, col(Job.state).in_(unfinished))
        .values(state=JobState.PENDING, attempts=0, error="", remedy="")
    )
    record(session, experiment, "resumed", now)


def _pending_by_rank(session: Session, prediction: Prediction) -> tuple[str, ...]:
    """Return the ids of pending jobs, best-ranked expert first: later experts then skip most."""
    pending = set(pending_jobs(session, prediction.id))
    jobs = session.exec(select(Job).where(Job.experiment_id == prediction.id)).all()
    by_rank = sorted(jobs, key=lambda job: prediction.ranking.index(job.candidate))
    return tuple(job.id for job in by_rank if job.id in pending)
