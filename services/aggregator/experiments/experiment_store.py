"""Store of experiments: created once per request id, advanced by compare-and-set."""

import time
import uuid
from collections.abc import Callable, Sequence

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select, tuple_

from modnorm.analysis.answers import BASE_INDEX
from modnorm.errors import ConflictError, InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.aggregator.experiments.admission import Admission
from modnorm.services.aggregator.experiments.lifecycle import (
    Change,
    PhaseProgress,
    add_candidates,
    end,
    fail,
    move,
    record,
)
from modnorm.services.aggregator.experiments.phases import start_selecting
from modnorm.services.aggregator.experiments.predictions import (
    Questions,
    admit_questions,
    ask_experts,
)
from modnorm.services.aggregator.experiments.records import ExperimentRecord, evaluated_states
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import (
    StoredText,
    find_experiment,
    keep_artifact,
    lock_experiment,
    unknown_experiment,
)
from modnorm.services.aggregator.storage.states import (
    IN_SETUP,
    TERMINAL,
    ArtifactKind,
    ExperimentState,
    JobState,
    Split,
)
from modnorm.services.aggregator.storage.tables import Ensemble, Event, Experiment, Job
from modnorm.spec import ExperimentSpec
from modnorm.wire.tokens import DEFAULT_TENANT

_EXPERIMENT_NAMESPACE = uuid.UUID("2c0c1f5e-2f0e-5a8b-8f57-6f1b5f3d9a10")


class ExperimentStore:
    """All experiments."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def check_visible(self, experiment_id: str, tenant: str) -> None:
        """Check that an experiment belongs to a tenant."""
        query = select(Experiment.tenant).where(Experiment.id == experiment_id)
        with self._database.read() as session:
            if session.exec(query).first() != tenant:
                raise unknown_experiment(experiment_id)

    def find(
        self, request_id: str, spec: ExperimentSpec, tenant: str = DEFAULT_TENANT
    ) -> ExperimentRecord | None:
        """Return the experiment that a tenant's request created; None if there is none."""
        with self._database.read() as session:
            experiment = session.get(Experiment, experiment_id_of(request_id, tenant))
            if experiment is None:
                return None
            if experiment.spec_digest != spec.digest:
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
        try:
            with self._database.write() as session:
                _keep_inputs(session, admission)
                experiment = _new_experiment(request_id, tenant, admission, self._clock())
                session.add(experiment)
                session.flush()
                record(session, experiment, _created(admission), experiment.create_time)
                if admission.of:
                    ask_experts(session, experiment, admission.of, experiment.create_time)
        except IntegrityError:
            existing = self.find(request_id, admission.spec, tenant)
            if existing is None:
                raise
            return existing
        return self.get(experiment.id)

    def get(self, experiment_id: str) -> ExperimentRecord:
        """Return an experiment with its results so far."""
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
                if last is None:
                    raise InvalidInputError("no experiment has this id", field="page_token")
                query = query.where(tuple_(*newest) < (last.create_time, last.id))
            return [(experiment, progress) for experiment, progress in session.exec(query)]

    def admit_questions(self, asked: Questions) -> Admission:
        """Return the inputs of the experiment that answers questions; errors as there."""
        with self._database.read() as session:
            return admit_questions(session, asked)

    def cancel(self, experiment_id: str) -> ExperimentRecord:
        """Cancel an experiment unless it has ended."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            end(session, experiment, ExperimentState.CANCELLED, "cancelled", self._clock())
        return self.get(experiment_id)

    def fail(self, experiment_id: str, reason: str, remedy: str = "") -> Change:
        """Fail an experiment unless it has ended; return the change."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            fail(session, experiment, reason, self._clock(), remedy=remedy)
            return Change(experiment_id, experiment=experiment)

    def wait_for(self, experiment_id: str, reason: str) -> None:
        """Record that the next step of an experiment waits for a service, unless it has ended."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state not in TERMINAL:
                message = f"waiting: {reason}"
                record(session, experiment, message, self._clock(), waits_for=reason)

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
            if experiment.needs_profile and experiment.profile_digest is None:
                experiment.examples_total = examples
                state, message = ExperimentState.CALIBRATING, "calibrating"
            else:
                state, message = ExperimentState.SAMPLING, "sampling"
            move(session, experiment, state, message, self._clock())

    def calibrated(self, experiment_id: str, done: int, total: int) -> bool:
        """Store the progress of a calibration; return False if the experiment has left it."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.CALIBRATING:
                return False
            if done > experiment.examples_done:
                experiment.examples_done, experiment.examples_total = done, total
                record(session, experiment, f"calibrated {done} of {total}", self._clock())
            return True

    def profiled(self, experiment_id: str, profile: StoredText) -> None:
        """Store the profile of a calibrating experiment and move it to sampling."""
        with self._database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment.state is not ExperimentState.CALIBRATING:
                return
            keep_artifact(session, ArtifactKind.PROFILE, profile)
            experiment.profile_digest = profile.digest
            experiment.examples_done = experiment.examples_total
            message = f"profile {profile.digest[:16]}"
            move(session, experiment, ExperimentState.SAMPLING, message, self._clock())

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
                stored = StoredText(scale_map.digest, scale_map.to_json())
                keep_artifact(session, ArtifactKind.SCALE_MAP, stored)
            experiment.scale_map_digest = scale_maps[0].digest
            descriptors = {BASE_INDEX: base, **dict(enumerate(population))}
            add_candidates(session, experiment_id, descriptors)
            start_selecting(session, experiment, descriptors, self._clock())
            return Change(experiment_id, pending=True)

    def _record_of(self, session: Session, experiment: Experiment) -> ExperimentRecord:
        base = session.exec(
            select(Job).where(
                Job.experiment_id == experiment.id,
                col(Job.split).in_(Split),  # lets the query use an index
                Job.candidate == BASE_INDEX,
                col(Job.metric).is_not(None),
            )
        ).all()
        ensembles = session.exec(
            select(Ensemble)
            .where(Ensemble.experiment_id == experiment.id)
            .order_by(col(Ensemble.population), col(Ensemble.ensemble_size))
        ).all()
        states = evaluated_states(session, experiment)
        progress = PhaseProgress.of(session, experiment).message(experiment)
        counts = select(Job.candidate, Job.answers_done, Job.valid, Job.truncated).where(
            Job.experiment_id == experiment.id,
            Job.split == Split.HELDOUT,
            Job.state == JobState.DONE,
        )
        answered = {index: (n, valid, cut) for index, n, valid, cut in session.exec(counts)}
        return ExperimentRecord(experiment, progress, base, ensembles, states, answered)


def experiment_id_of(request_id: str, tenant: str = DEFAULT_TENANT) -> str:
    """Return the id of a request's experiment, a function of request id and tenant."""
    return str(uuid.uuid5(_EXPERIMENT_NAMESPACE, _request_key(request_id, tenant)))


def _request_key(request_id: str, tenant: str) -> str:
    """Return tenant and request id as one text. No request id contains the separator."""
    return request_id if tenant == DEFAULT_TENANT else f"{tenant}\x1f{request_id}"


def _new_experiment(request_id: str, tenant: str, admission: Admission, now: float) -> Experiment:
    profile = admission.profile
    return Experiment(
        id=experiment_id_of(request_id, tenant),
        tenant=tenant,
        request_id=request_id,
        request_key=_request_key(request_id, tenant),
        spec_json=admission.spec.model_dump_json(),
        spec_digest=admission.spec.digest,
        create_time=now,
        model_digest=admission.model_digest,
        scorer=admission.scorer,
        max_tokens=admission.max_tokens,
        needs_profile=admission.needs_profile,
        profile_digest=profile.digest if profile else None,
        selection_digest=admission.selection.digest,
        heldout_digest=admission.heldout.digest,
        selection_rows=admission.selection_rows,
        heldout_rows=admission.heldout_rows,
        selection_revision=admission.selection_revision,
        heldout_revision=admission.heldout_revision,
        development_digest=admission.development.digest if admission.development else "",
        development_rows=admission.development_rows,
        generator_digest=admission.generator.digest if admission.generator else "",
        prompts_digest=admission.prompts_digest,
        experts=admission.experts,
    )


def _created(admission: Admission) -> str:
    remarks = ["created"]
    if admission.isolation:
        remarks.append(f"programs of the model run in a sandbox with {admission.isolation}")
    overlaps = {"selection": admission.overlap, "development": admission.development_overlap}
    remarks += [
        f"{count} of {admission.heldout_rows} held-out rows have the prompts of {name} rows"
        for name, count in overlaps.items()
        if count
    ]
    return "; ".join(remarks)


def _keep_inputs(session: Session, admission: Admission) -> None:
    # In digest order, so that two experiments that share rows cannot deadlock.
    splits = (admission.selection, admission.heldout, admission.development)
    for rows in sorted((one for one in splits if one), key=lambda one: one.digest):
        keep_artifact(session, ArtifactKind.ROWS, rows)
    if admission.generator:
        keep_artifact(session, ArtifactKind.GENERATOR, admission.generator)
    if admission.profile:
        keep_artifact(session, ArtifactKind.PROFILE, admission.profile)
