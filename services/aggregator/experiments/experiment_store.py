"""Store of experiments: created once per request id, advanced by compare-and-set, read."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select, tuple_

from modnorm.analysis.run_data import BaseRow, EnsembleRow, StateRow
from modnorm.errors import ConflictError, InvalidInputError, NotFoundError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import needs_profile
from modnorm.search.answers import BASE_INDEX, Answer
from modnorm.services.aggregator.experiments.admission import Admission, admit_questions
from modnorm.services.aggregator.experiments.iterative_updates import (
    evaluated_states,
    lineage_of,
    steps_to,
)
from modnorm.services.aggregator.experiments.lifecycle import (
    Change,
    PhaseProgress,
    add_candidates,
    end,
    fail,
    record,
)
from modnorm.services.aggregator.experiments.phases import start_answering, start_selecting
from modnorm.services.aggregator.storage.database import Database, transaction_time
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.lookups import (
    StoredText,
    find_experiment,
    keep_artifact,
    load_text,
    lock_experiment,
    unknown_experiment,
)
from modnorm.services.aggregator.storage.tables import (
    IN_SETUP,
    TERMINAL,
    AnswerSheet,
    Candidate,
    Ensemble,
    Event,
    Experiment,
    ExperimentState,
    Job,
    Split,
)
from modnorm.v1 import experiment_pb2
from modnorm.wire.answer_sheets import unpack_answers
from modnorm.wire.tokens import DEFAULT_TENANT

_EXPERIMENT_NAMESPACE = uuid.UUID("2c0c1f5e-2f0e-5a8b-8f57-6f1b5f3d9a10")


class ExperimentRecord(NamedTuple):
    """An experiment with its results so far."""

    experiment: Experiment
    progress: experiment_pb2.Progress
    base: BaseRow
    ensembles: Sequence[EnsembleRow]
    states: Sequence[StateRow] = ()
    """Evaluated states of an iterative run."""


class CandidateJobs(NamedTuple):
    candidate: Candidate
    selection: Job
    heldout: Job | None


class ExperimentStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def check_visible(self, experiment_id: str, tenant: str) -> None:
        query = select(Experiment.tenant).where(Experiment.id == experiment_id)
        with self._database.read() as session:
            if session.exec(query).first() != tenant:
                raise unknown_experiment(experiment_id)

    def find(
        self, request_id: str, spec_digest: str, tenant: str = DEFAULT_TENANT
    ) -> ExperimentRecord | None:
        """Return the experiment that a tenant's request created; None if there is none."""
        with self._database.read() as session:
            experiment = session.get(Experiment, experiment_id_of(request_id, tenant))
            if experiment is None:
                return None
            if experiment.spec_digest != spec_digest:
                raise ConflictError(
                    f"request id {request_id!r} belongs to another spec",
                    field="request_id",
                    remedy="send the same spec again, or use a new request id",
                )
            return self._record_of(session, experiment)

    def create(
        self, request_id: str, admission: Admission, tenant: str = DEFAULT_TENANT
    ) -> ExperimentRecord:
        """Store an experiment; if the same request has stored one, return that experiment."""
        experiment_id = experiment_id_of(request_id, tenant)
        try:
            with self._database.write() as session:
                # In digest order, so that two experiments that share rows cannot deadlock.
                for text in sorted(admission.texts, key=lambda one: one.digest):
                    keep_artifact(session, text)
                experiment = Experiment(
                    id=experiment_id,
                    tenant=tenant,
                    request_id=request_id,
                    create_time=transaction_time(session),
                    **admission.inputs,
                )
                session.add(experiment)
                session.flush()
                record(session, experiment, "; ".join(("created", *admission.remarks)))
                if admission.asked_run:
                    _ask_experts(session, experiment, admission.asked_run)
        except IntegrityError:
            existing = self.find(request_id, admission.inputs["spec_digest"], tenant)
            if existing is None:
                raise
            return existing
        return self.get(experiment_id)

    def get(self, experiment_id: str) -> ExperimentRecord:
        with self._database.read() as session:
            return self._record_of(session, find_experiment(session, experiment_id))

    def page(
        self, limit: int, after: str = "", scope: str | None = None
    ) -> Sequence[tuple[Experiment, bytes]]:
        """Return a tenant's experiments, newest first, each with the progress of its last event.

        They follow the experiment with the id `after`; the scope None is all tenants.
        """
        newest = (col(Experiment.create_time), col(Experiment.id))
        query = (
            select(Experiment, Event.progress)
            .join(
                Event,
                (col(Event.experiment_id) == col(Experiment.id))
                & (col(Event.cursor) == col(Experiment.last_cursor)),
            )
            .order_by(*(column.desc() for column in newest))
            .limit(limit)
        )
        if scope is not None:
            query = query.where(Experiment.tenant == scope)
        with self._database.read() as session:
            if after:
                last = session.get(Experiment, after)
                if last is None or scope not in (None, last.tenant):
                    raise InvalidInputError("no experiment has this id", field="page_token")
                query = query.where(tuple_(*newest) < (last.create_time, last.id))
            return [(experiment, progress) for experiment, progress in session.exec(query)]

    def admit_questions(self, asked: experiment_pb2.Questions) -> Admission:
        with self._database.read() as session:
            return admit_questions(session, asked)

    def cancel(self, experiment_id: str) -> ExperimentRecord:
        """Cancel an experiment unless it has ended."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            end(session, experiment, ExperimentState.CANCELLED, "cancelled")
        return self.get(experiment_id)

    def fail(self, experiment_id: str, reason: str, remedy: str = "") -> None:
        """Fail an experiment unless it has ended."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            fail(session, experiment, reason, remedy=remedy)

    def wait_for(self, experiment_id: str, reason: str) -> None:
        """Record that the next step of an experiment waits for a service, unless it has ended."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state not in TERMINAL:
                message = f"waiting: {reason}"
                record(session, experiment, message, waits_for=reason)

    def driven(self) -> tuple[str, ...]:
        """Return the ids of experiments in setup, oldest first."""
        query = (
            select(Experiment.id)
            .where(col(Experiment.state).in_(IN_SETUP))
            .order_by(col(Experiment.create_time), col(Experiment.id))
        )
        with self._database.read() as session:
            return tuple(session.exec(query).all())

    def leave_pending(self, experiment_id: str, examples: int) -> None:
        """Move a pending experiment to calibration, or to sampling if it needs no profile."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.PENDING:
                return
            calibrated = needs_profile(experiment.spec.method.name)
            if calibrated and experiment.profile_digest is None:
                experiment.examples_total = examples
                state, message = ExperimentState.CALIBRATING, "calibrating"
            else:
                state, message = ExperimentState.SAMPLING, "sampling"
            record(session, experiment, message, state=state)

    def calibrated(self, experiment_id: str, done: int, total: int) -> bool:
        """Store the progress of a calibration; return False if the experiment has left it."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.CALIBRATING:
                return False
            if done > experiment.examples_done:
                experiment.examples_done, experiment.examples_total = done, total
                record(session, experiment, f"calibrated {done} of {total}")
            return True

    def profiled(self, experiment_id: str, profile: StoredText) -> None:
        """Store the profile of a calibrating experiment and move it to sampling."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.CALIBRATING:
                return
            keep_artifact(session, profile)
            experiment.profile_digest = profile.digest
            experiment.examples_done = experiment.examples_total
            message = f"profile {profile.digest[:16]}"
            sampling = ExperimentState.SAMPLING
            record(session, experiment, message, state=sampling)

    def sampled(
        self,
        experiment_id: str,
        scale_maps: Sequence[ScaleMap],
        base: Descriptor,
        population: Sequence[Descriptor],
    ) -> Change | None:
        """Store the candidates of a sampling experiment and their selection jobs.

        `scale_maps` are those of the method and of the base.
        """
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.SAMPLING:
                return None
            for scale_map in sorted(scale_maps, key=lambda one: one.digest):
                keep_artifact(session, StoredText(scale_map.digest, scale_map.to_json()))
            experiment.scale_map_digest = scale_maps[0].digest
            descriptors = {BASE_INDEX: base, **dict(enumerate(population))}
            add_candidates(session, experiment_id, descriptors)
            start_selecting(session, experiment, descriptors)
            return Change(experiment_id, pending=True)

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
        query = (
            select(AnswerSheet.content)
            .join(Job, col(AnswerSheet.job_id) == col(Job.id))
            .where(
                Job.experiment_id == experiment_id, Job.split == split, Job.candidate == candidate
            )
        )
        with self._database.read() as session:
            content = session.exec(query).first()
        if content is None:
            raise NotFoundError(f"candidate {candidate} has no {split} answers", field="candidate")
        return unpack_answers(content)

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

    def artifact(self, digest: str) -> str:
        with self._database.read() as session:
            return load_text(session, digest)

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

    def _record_of(self, session: Session, experiment: Experiment) -> ExperimentRecord:
        metrics = dict(
            session.exec(
                select(Job.split, Job.metric).where(
                    Job.experiment_id == experiment.id,
                    col(Job.split).in_(Split),  # lets the query use an index
                    Job.candidate == BASE_INDEX,
                )
            ).all()
        )
        base = BaseRow(metrics.get(Split.SELECTION), metrics.get(Split.HELDOUT))
        ensembles = session.exec(
            select(Ensemble)
            .where(Ensemble.experiment_id == experiment.id)
            .order_by(col(Ensemble.population), col(Ensemble.ensemble_size))
        )
        states = evaluated_states(session, experiment)
        progress = PhaseProgress.of(session, experiment).message(experiment)
        results = [ensemble.result for ensemble in ensembles]
        return ExperimentRecord(experiment, progress, base, results, states)


def _ask_experts(session: Session, experiment: Experiment, run_id: str) -> None:
    """Give a new experiment the experts of a finished run, and begin their answers."""
    lock_experiment(session, run_id)  # it may be removed meanwhile, with the artifacts of both
    experts = session.exec(
        select(Candidate).where(
            Candidate.experiment_id == run_id, col(Candidate.index).in_(experiment.asked_experts)
        )
    )
    rows = [expert.model_dump() | {"experiment_id": experiment.id} for expert in experts]
    insert_rows(session, Candidate, rows)
    start_answering(session, experiment)


def experiment_id_of(request_id: str, tenant: str = DEFAULT_TENANT) -> str:
    # No request id contains the separator.
    key = request_id if tenant == DEFAULT_TENANT else f"{tenant}\x1f{request_id}"
    return str(uuid.uuid5(_EXPERIMENT_NAMESPACE, key))
