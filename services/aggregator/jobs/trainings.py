"""Store of trainings: their progress and their reports."""

import math
import time
from collections.abc import Callable

from sqlmodel import Session

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments.lifecycle import Change, close_job, record
from modnorm.services.aggregator.jobs.worker_requests import stale
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.dialects import insert_if_absent
from modnorm.services.aggregator.storage.lookups import lock_job
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Experiment, Job, ObsoleteStudent, Round
from modnorm.services.common.students import Students
from modnorm.v1 import evaluation_pb2


class TrainingStore:
    """The training jobs of all distillations.

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

    def progress(self, lease: evaluation_pb2.Lease, progress: evaluation_pb2.TrainProgress) -> str:
        """Record the progress of a training as an event; return its distillation's id.

        The lease was just extended. A repeated number of tokens changes nothing.
        """
        with self._database.write() as session:
            job, experiment = lock_job(session, lease.job_id)
            is_current = job.token == lease.token and job.state is JobState.LEASED
            if job.split is Split.TRAINING and is_current and progress.tokens > job.tokens:
                job.tokens = progress.tokens
                message = f"round {job.candidate}: {_progress_words(progress)}"
                record(session, experiment, message, self._clock())
            return experiment.id

    def report(self, report: evaluation_pb2.TrainReport) -> Change:
        """Store the result of a training; a repeated report changes nothing.

        The student of a training that was cancelled, or whose lease was lost, becomes obsolete.

        Raises:
            NotFoundError: there is no such job, or the student is not stored.
            StaleLeaseError: another trainer has the job, or it is cancelled.
            InvalidInputError: a number is out of range.
        """
        _check(report)
        with self._database.write() as session:
            job, experiment = lock_job(session, report.lease.job_id)
            if job.split is Split.TRAINING and report.lease.token == job.token:
                if job.state is JobState.DONE:
                    return Change(experiment.id)
                if job.state in {JobState.LEASED, JobState.PENDING}:
                    return self._store(session, experiment, job, report)
            if self._students.path(report.student_digest) is not None:
                insert_if_absent(session, ObsoleteStudent, {"digest": report.student_digest})
        raise stale(job)

    def _store(
        self,
        session: Session,
        experiment: Experiment,
        job: Job,
        report: evaluation_pb2.TrainReport,
    ) -> Change:
        part = session.get_one(Round, (experiment.id, job.candidate))
        _keep(experiment, job, part, report)
        session.flush()  # a removal of the student has ended, or waits for this transaction
        self._students.require(report.student_digest)
        message = f"round {part.index}: student {report.student_digest[:12]} is trained"
        record(session, experiment, message, self._clock())
        return Change(experiment.id, job=job, experiment=experiment)


def _keep(
    experiment: Experiment, job: Job, part: Round, report: evaluation_pb2.TrainReport
) -> None:
    stored = evaluation_pb2.TrainReport()
    stored.CopyFrom(report)
    stored.ClearField("lease")
    part.training = stored.SerializeToString(deterministic=True)
    part.student_digest = report.student_digest
    job.attempts += job.state is JobState.LEASED
    job.worker = report.worker or job.worker
    job.error = job.remedy = ""
    job.tokens = report.tokens
    job.generate_seconds = report.seconds
    close_job(experiment, job, done=True)


def _progress_words(progress: evaluation_pb2.TrainProgress) -> str:
    words = f"training step {progress.step} of {progress.steps}"
    if progress.HasField("loss"):
        words += f", loss {progress.loss:.4f}, learning rate {progress.learning_rate:.3g}"
    return words


def _check(report: evaluation_pb2.TrainReport) -> None:
    values = [report.flops, report.seconds]
    values += [value for one in report.losses for value in (one.loss, one.learning_rate)]
    if not all(map(math.isfinite, values)) or min(report.flops, report.seconds) < 0:
        raise InvalidInputError(
            "seconds, operations and losses must be finite", field="trained.losses"
        )
    if min(report.steps, report.examples, report.too_long, report.tokens) < 0:
        raise InvalidInputError("counts must not be negative", field="trained.steps")
