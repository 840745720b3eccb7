"""Distillations: rounds of search, harvest, training and evaluation.

The conductor drives a distillation. Each method that advances one is a transaction that checks
phase and state first. So a killed aggregator, or a second one, repeats at most a read.
"""

import time
from collections.abc import Callable
from functools import partial

from sqlmodel import Session, col, select

from modnorm.checkpoint.students import student_name
from modnorm.distillation.dataset import dataset_digest
from modnorm.distillation.sampling_seeds import training_seed
from modnorm.services.aggregator.experiments.children import (
    add_evaluation,
    add_harvest,
    add_search,
    end_children,
)
from modnorm.services.aggregator.experiments.harvests import Harvest, make_dataset
from modnorm.services.aggregator.experiments.lifecycle import (
    Change,
    add_jobs,
    end,
    fail,
    move,
    record,
)
from modnorm.services.aggregator.experiments.round_waiting import reason_to_wait
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import lock_experiment, pending_jobs
from modnorm.services.aggregator.storage.states import (
    ArtifactKind,
    ExperimentState,
    RoundPhase,
    Split,
)
from modnorm.services.aggregator.storage.stored_artifacts import StoredText, keep_artifact
from modnorm.services.aggregator.storage.table_statistics import insert_rows
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Round
from modnorm.services.common.students import Students

TRAINED = "student"
"""Method of the candidates that stand for students."""
_SHARE = 20
"""A phase records its progress at most this many times."""
_WORDS = {
    RoundPhase.SEARCHING: "search",
    RoundPhase.HARVESTING: "harvest",
    RoundPhase.EVALUATING: "evaluation",
}


class DistillationStore:
    """The distillations of one database.

    Args:
        database: Their database.
        students: The stored students.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self, database: Database, students: Students, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._students = students
        self._clock = clock

    def begin(self, experiment_id: str) -> None:
        """Begin a pending distillation with the evaluation of its base."""
        with self._database.write() as session:
            parent = lock_experiment(session, experiment_id)
            if parent.state is not ExperimentState.PENDING:
                return
            now = self._clock()
            part = Round(experiment_id=parent.id, index=0, phase=RoundPhase.EVALUATING)
            model = parent.spec.model.name, parent.model_digest
            part.evaluation_id = add_evaluation(session, parent, part, model, now).id
            session.add(part)
            session.flush()
            message = "the base answers development and held-out rows"
            move(session, parent, ExperimentState.DISTILLING, message, now)

    def advance(self, experiment_id: str) -> Change | None:
        """Take the next step of a distillation if its present phase has ended.

        Returns:
            The change, with the jobs that became pending; None if the phase continues.
        """
        with self._database.read() as session:
            part = _present(session, experiment_id)
            child = session.get(Experiment, _child_id(part))
        if part.phase is RoundPhase.TRAINING:
            if part.student_digest:
                return self._step(part, self._evaluate_student)
            self._record_waiting(part, None)
            return None
        if child is None:
            return None
        if child.state is ExperimentState.SUCCEEDED:
            return self._follow(part)
        if child.state in {ExperimentState.FAILED, ExperimentState.CANCELLED}:
            return self._step(part, partial(self._end_failed, child))
        self._record_progress(part, child)
        self._record_waiting(part, child)
        return None

    def _follow(self, part: Round) -> Change | None:
        """Take the step that follows a succeeded child."""
        match part.phase:
            case RoundPhase.SEARCHING:
                return self._step(part, self._start_harvest)
            case RoundPhase.HARVESTING:
                harvest = self._read_harvest(part)
                follow = self._start_training if harvest.text else self._end_empty
                return self._step(part, partial(follow, harvest))
            case _:
                return self._step(part, self._end_round)

    def _step(
        self, before: Round, take: Callable[[Session, Experiment, Round], Change | None]
    ) -> Change | None:
        """Take a step in a transaction that has locked the distillation.

        Nothing happens if the distillation or its round has moved on since `before` was read.
        """
        with self._database.write() as session:
            parent = lock_experiment(session, before.experiment_id)
            key = before.experiment_id, before.index
            part = session.get_one(Round, key, populate_existing=True)
            if parent.state is not ExperimentState.DISTILLING or part.phase is not before.phase:
                return None
            return take(session, parent, part)

    def _start_harvest(self, session: Session, parent: Experiment, part: Round) -> Change:
        now = self._clock()
        search = session.get_one(Experiment, part.search_id)
        child = add_harvest(session, parent, part, search, now)
        part.harvest_id, part.phase = child.id, RoundPhase.HARVESTING
        _note(session, parent, part, "the experts answer the training rows", now)
        return Change(child.id, pending_jobs(session, child.id))

    def _read_harvest(self, part: Round) -> Harvest:
        """Return the dataset of a round; the long read blocks no report."""
        with self._database.read() as session:
            parent = session.get_one(Experiment, part.experiment_id)
            earlier = _earlier_dataset(session, parent, part)
            return make_dataset(session, parent, part, earlier)

    def _start_training(
        self, harvest: Harvest, session: Session, parent: Experiment, part: Round
    ) -> Change:
        """Store the dataset of a round and the job that trains on it."""
        now, settings = self._clock(), parent.distillation
        digest = dataset_digest(harvest.text)
        keep_artifact(session, ArtifactKind.DATASET, StoredText(digest, harvest.text))
        part.dataset_digest, part.phase = digest, RoundPhase.TRAINING
        part.harvest = harvest.counts.SerializeToString(deterministic=True)
        start = _student_before(session, part) if settings.train_from == "student" else None
        part.start_model, part.start_digest = start or _base(parent)
        earlier = _equal_training(session, parent, part, self._students)
        if earlier is not None:
            part.student_digest, part.training = earlier.student_digest, earlier.training
            message = f"student {part.student_digest[:12]} is that of an equal training"
            _note(session, parent, part, message, now)
            return Change(parent.id)
        insert_rows(session, Candidate, [_trained_candidate(parent, part)])
        add_jobs(session, parent, {Split.TRAINING: [part.index]})
        counts = harvest.counts
        message = (
            f"{counts.right} of {counts.answers} answers are right; "
            f"training on {counts.dataset_examples} examples"
        )
        _note(session, parent, part, message, now)
        return Change(parent.id, training=pending_jobs(session, parent.id, trains=True))

    def _end_empty(
        self, harvest: Harvest, session: Session, parent: Experiment, part: Round
    ) -> Change:
        part.harvest = harvest.counts.SerializeToString(deterministic=True)
        fail(
            session,
            parent,
            f"round {part.index}: none of {harvest.counts.answers} answers to training rows is "
            "right and complete, so there is nothing to train on",
            self._clock(),
            remedy="give more training rows, more samples or a longer completion cap "
            "(distillation.rows, distillation.harvest, task.max_tokens)",
        )
        return Change(parent.id)

    def _evaluate_student(self, session: Session, parent: Experiment, part: Round) -> Change:
        now = self._clock()
        model = student_name(part.student_digest), part.student_digest
        part.evaluation_id = add_evaluation(session, parent, part, model, now).id
        part.phase = RoundPhase.EVALUATING
        message = f"student {part.student_digest[:12]} answers development and held-out rows"
        _note(session, parent, part, message, now)
        return Change(parent.id)

    def _end_round(self, session: Session, parent: Experiment, part: Round) -> Change:
        """Begin the next round, or end the distillation after the last."""
        now = self._clock()
        part.phase = RoundPhase.DONE
        if part.index == parent.distillation.rounds:
            # Progress was recorded before the last job of the evaluation ended.
            parent.jobs_done = parent.jobs_total
            end(session, parent, ExperimentState.SUCCEEDED, "finished", now)
        else:
            self._begin_round(session, parent, part.index + 1, now)
        return Change(parent.id)

    def _begin_round(self, session: Session, parent: Experiment, index: int, now: float) -> None:
        part = Round(experiment_id=parent.id, index=index, phase=RoundPhase.SEARCHING)
        around = parent.distillation.search_around
        student = _student_before(session, part) if around == "student" else None
        part.searched_model, part.searched_digest = student or _base(parent)
        part.search_id = add_search(session, parent, part, now).id
        session.add(part)
        session.flush()
        _note(session, parent, part, f"searching around {_brief(part.searched_model)}", now)

    def _end_failed(
        self, child: Experiment, session: Session, parent: Experiment, part: Round
    ) -> Change:
        reason = child.error or "it was cancelled"
        message = f"round {part.index}: the {_WORDS[part.phase]} failed: {reason}"
        fail(session, parent, message, self._clock(), remedy=child.remedy)
        end_children(session, parent.id, self._clock())
        return Change(parent.id)

    def _record_progress(self, before: Round, child: Experiment) -> None:
        """Record the progress of a child as an event of the distillation, once it has jobs."""
        if not child.jobs_total:
            return
        with self._database.read() as session:
            parent = session.get_one(Experiment, before.experiment_id)
        old, new = (one.jobs_done * _SHARE // max(one.jobs_total, 1) for one in (parent, child))
        if old == new and parent.jobs_total == child.jobs_total:
            return

        def keep(session: Session, parent: Experiment, part: Round) -> None:
            parent.jobs_done, parent.jobs_total = child.jobs_done, child.jobs_total
            parent.jobs_failed = child.jobs_failed
            message = f"{_WORDS[part.phase]}: {child.jobs_done} of {child.jobs_total} jobs"
            _note(session, parent, part, message, self._clock())

        self._step(before, keep)

    def _record_waiting(self, before: Round, child: Experiment | None) -> None:
        """Record once why a round waits: for a trainer, or for what its child waits for."""
        with self._database.read() as session:
            parent = session.get_one(Experiment, before.experiment_id)
            reason = reason_to_wait(session, parent, child, self._clock())
        if reason == parent.waits_for:
            return
        message = f"waiting: {reason}" if reason else "no longer waiting"

        def keep(session: Session, parent: Experiment, part: Round) -> None:
            text = f"round {part.index}: {message}"
            record(session, parent, text, self._clock(), waits_for=reason)

        self._step(before, keep)


def _present(session: Session, experiment_id: str) -> Round:
    query = (
        select(Round)
        .where(Round.experiment_id == experiment_id)
        .order_by(col(Round.index).desc())
        .limit(1)
    )
    return session.exec(query).one()


def _child_id(part: Round) -> str:
    match part.phase:
        case RoundPhase.SEARCHING:
            return part.search_id
        case RoundPhase.HARVESTING:
            return part.harvest_id
        case RoundPhase.EVALUATING:
            return part.evaluation_id
        case _:
            return ""


def _base(parent: Experiment) -> tuple[str, str]:
    return parent.spec.model.name, parent.model_digest


def _student_before(session: Session, part: Round) -> tuple[str, str] | None:
    """Return name and digest of the last round's student; None before the first training."""
    before = session.get(Round, (part.experiment_id, part.index - 1))
    if before is None or not before.student_digest:
        return None
    return student_name(before.student_digest), before.student_digest


def _earlier_dataset(session: Session, parent: Experiment, part: Round) -> str:
    """Return the digest of the dataset that a round adds to; empty if it starts anew."""
    before = session.get(Round, (part.experiment_id, part.index - 1))
    if before is None or not parent.distillation.harvest.accumulate:
        return ""
    return before.dataset_digest


def _trained_candidate(parent: Experiment, part: Round) -> dict[str, object]:
    """Return the candidate that stands for a round's student; its seed is that of the training."""
    return {
        "experiment_id": parent.id,
        "index": part.index,
        "noise": "",
        "seed": training_seed(parent.spec.population.seed, part.index),
        "method": TRAINED,
        "radius": 0.0,
        "scale_map_digest": "",
    }


def _equal_training(
    session: Session, parent: Experiment, part: Round, students: Students
) -> Round | None:
    """Return a round of an earlier distillation that trained the same student.

    Its spec was submitted again after a failure. A student whose files somebody deleted is
    trained again.
    """
    query = (
        select(Round)
        .where(
            Round.dataset_digest == part.dataset_digest,
            Round.start_digest == part.start_digest,
            Round.index == part.index,
            Round.student_digest != "",
            Round.experiment_id != parent.id,
        )
        .order_by(col(Round.experiment_id))
    )
    for other in session.exec(query):
        earlier = session.get_one(Experiment, other.experiment_id)
        equal = (
            earlier.tenant == parent.tenant
            and earlier.distillation.training == parent.distillation.training
            and earlier.spec.population.seed == parent.spec.population.seed
            and students.path(other.student_digest) is not None
        )
        if equal:
            return other
    return None


def _note(session: Session, parent: Experiment, part: Round, message: str, now: float) -> None:
    record(session, parent, f"round {part.index}: {message}", now)


def _brief(model: str) -> str:
    """Return a model's name with a short digest."""
    return model[:20] if model.startswith("student:") else model
