"""One training from claim to report."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.students import student_digest
from modnorm.errors import (
    CancelledError,
    IncompatibleError,
    NotFoundError,
    StaleLeaseError,
    UnavailableError,
)
from modnorm.files import write_file
from modnorm.services.common.logging import naming
from modnorm.services.common.settings import TrainerSettings
from modnorm.services.common.students import Students
from modnorm.services.common.worker.aggregator_calls import claim_or_log
from modnorm.services.common.worker.backoff import JobBackoff
from modnorm.services.common.worker.failures import report_error, report_failure
from modnorm.services.common.worker.lease import Heartbeats, ReleasedError
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.services.common.worker.software import SOFTWARE
from modnorm.services.trainer.metrics import TrainerMetrics, TrainingOutcome
from modnorm.services.trainer.training_client import TrainingClient
from modnorm.services.trainer.training_directories import TrainingDirectories
from modnorm.services.trainer.training_lease import TrainingLease
from modnorm.training import TrainedStudent, TrainingJob, train_in_child
from modnorm.training.job import STUDENT
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import training_from_proto

DATASET = "examples.jsonl"

logger = logging.getLogger(__name__)


class TrainingRunner:
    """Runs one training after another; used by one thread.

    Args:
        client: The aggregator.
        shutdown: The request to stop.
        settings: Directories, device and intervals.
        metrics: Counts jobs.
    """

    def __init__(
        self,
        client: TrainingClient,
        shutdown: Shutdown,
        settings: TrainerSettings,
        metrics: TrainerMetrics,
    ) -> None:
        self._client = client
        self._shutdown = shutdown
        self._settings = settings
        self._metrics = metrics
        self._students = Students(settings.students)
        self._directories = TrainingDirectories(settings.trainings)
        self._heartbeats = Heartbeats(client, settings.heartbeat_seconds)
        self._backoff = JobBackoff()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job."""
        return self._backoff.seconds

    def run(self, job_id: str) -> None:
        """Claim a job, train its student, and report the result or the failure.

        It raises nothing: a bad job never ends the worker. If no failure can be reported, the
        lease expires.
        """
        self._directories.remove_old()
        job = claim_or_log(self._client.claim, job_id)
        if job is not None:
            with naming(**_names(job)), self._metrics.busy.track_inprogress():
                self._metrics.ended(self._outcome(job))

    def _outcome(self, job: messages.TrainJob) -> TrainingOutcome:
        """Train and report; report a failure instead of raising it."""
        try:
            self._train(job)
        except CancelledError as error:
            logger.info("dropped: %s", error)
            self._directories.remove(job)
            return TrainingOutcome.DROPPED
        except StaleLeaseError as error:
            logger.info("dropped: %s", error)
            return TrainingOutcome.DROPPED
        except ReleasedError as error:
            logger.info("released", extra={"reason": str(error)})
            report_failure(self._client, job.lease, messages.FAILURE_KIND_RELEASED, str(error))
            return TrainingOutcome.RELEASED
        except Exception as error:
            logger.exception("the attempt failed")
            self._fail_attempt(job, error)
            return TrainingOutcome.FAILED
        logger.info("reported")
        self._backoff.answered()
        self._directories.remove(job)
        return TrainingOutcome.REPORTED

    def _train(self, job: messages.TrainJob) -> None:
        lease = TrainingLease(
            self._heartbeats,
            job.lease,
            self._shutdown,
            stall_seconds=self._settings.train_stall_seconds,
        )
        with lease, self._directories.open(job) as directory:
            student = train_in_child(
                self._training_job(job, directory),
                on_progress=lease.progress,
                is_cancelled=lease.is_cancelled,
            )
            self._metrics.trained(student)
            self._client.send_student(directory / STUDENT, student.digest)
            self._report(job, student)

    def _report(self, job: messages.TrainJob, student: TrainedStudent) -> None:
        try:
            self._client.report(_report(job.lease, self._client.worker, student))
        except NotFoundError as error:
            # An equal student was stored, and a removal of old students took it just now.
            raise UnavailableError(f"the student has to be sent again: {error}") from error

    def _training_job(self, job: messages.TrainJob, directory: Path) -> TrainingJob:
        """Return the job of the library, once its base and its dataset are here."""
        base = self._base(job)
        dataset = directory / DATASET
        content = self._client.dataset(job.dataset_digest)
        if hashlib.sha256(content.removesuffix(b"\n")).hexdigest() != job.dataset_digest:
            raise UnavailableError(f"dataset {job.dataset_digest[:12]} was not received whole")
        write_file(dataset, content)
        return TrainingJob(
            model=base.name if base.revision is not None else str(base.directory),
            revision=base.revision,
            dataset=dataset,
            training=training_from_proto(job.settings),
            seed=job.seed,
            directory=directory,
            device=self._settings.train_device or None,
            threads=self._settings.torch_threads,
        )

    def _base(self, job: messages.TrainJob) -> Checkpoint:
        model, digest = job.model, student_digest(job.model.name)
        if digest:
            return resolve_checkpoint(str(self._client.student(digest, self._students).resolve()))
        revision = model.revision if model.HasField("revision") else None
        base = resolve_checkpoint(model.name, revision, roots=self._settings.model_roots)
        if base.digest != job.model_digest:
            raise IncompatibleError(
                f"{base.name} has digest {base.digest[:12]} here, not {job.model_digest[:12]}",
                field="model_digest",
                remedy="give all services the same model files",
            )
        return base

    def _fail_attempt(self, job: messages.TrainJob, error: Exception) -> None:
        kind = report_error(self._client, job.lease, error)
        if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
            self._backoff.failed(at_engine=True)


def _report(lease: messages.Lease, worker: str, student: TrainedStudent) -> messages.TrainReport:
    losses = [
        messages.LossRecord(step=each.step, loss=each.loss, learning_rate=each.learning_rate)
        for each in student.losses
    ]
    return messages.TrainReport(
        lease=lease,
        worker=worker,
        student_digest=student.digest,
        steps=student.steps,
        examples=student.examples,
        too_long=student.left_out,
        tokens=student.tokens,
        flops=student.flops,
        seconds=student.seconds,
        losses=losses,
        environment={
            **SOFTWARE,
            "micro_batch": str(student.micro_batch),
            **student.environment,
        },
    )


def _names(job: messages.TrainJob) -> Mapping[str, str | int]:
    """Return the fields that a log line needs to identify a job."""
    return {"experiment": job.experiment_id, "job": job.lease.job_id, "round": job.round}
