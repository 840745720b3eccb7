"""The trainer's calls to the aggregator."""

from functools import partial
from pathlib import Path

from modnorm.errors import PreconditionError, UnavailableError
from modnorm.services.common.student_transfer import fetch_student, send_student
from modnorm.services.common.students import Students
from modnorm.services.common.worker.aggregator_calls import (
    BULK_SECONDS,
    CALL_SECONDS,
    REPORT_PATIENCE,
    AggregatorCalls,
)
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.v1.models_pb2_grpc import ModelServiceStub


class TrainingClient(AggregatorCalls):
    """Calls the aggregator; each call raises the error that the service returned.

    Args:
        jobs: A synchronous stub of the jobs.
        models: A synchronous stub of the students.
        worker: Name of the worker in leases.
        shutdown: After its request only reports and failures are retried, in the grace period.
    """

    def __init__(
        self, jobs: JobServiceStub, models: ModelServiceStub, *, worker: str, shutdown: Shutdown
    ) -> None:
        super().__init__(jobs, worker=worker, shutdown=shutdown)
        self._models = models

    def claim(self, job_id: str) -> messages.TrainJob | None:
        """Lease a job; None if it needs no work. Waits for an aggregator that is down.

        Raises:
            UnavailableError: the worker is stopping.
        """
        response = self._claim(job_id, trains=True)
        return response.train if response.HasField("train") else None

    def dataset(self, digest: str) -> bytes:
        """Return a dataset: JSON lines, each ended by a line feed."""
        request = messages.FetchDatasetRequest(digest=digest)
        parts = partial(self._stub.FetchDataset, request, timeout=BULK_SECONDS)
        lines = self._fetch(lambda: [line for part in parts() for line in part.lines])
        return "".join(f"{line}\n" for line in lines).encode()

    def student(self, digest: str, students: Students) -> Path:
        """Return the directory of a student, which is downloaded unless this host has it."""
        return self._fetch(lambda: fetch_student(self._models, digest, students))

    def send_student(self, directory: Path, digest: str) -> None:
        """Upload a student; files that the aggregator has are not sent again.

        Raises:
            UnavailableError: the aggregator stayed down, or refused the files.
        """
        try:
            self._send_outcome(
                lambda: send_student(self._models, directory, digest), REPORT_PATIENCE
            )
        except PreconditionError as error:
            raise UnavailableError(f"student {digest[:12]} was not stored: {error}") from error

    def report(self, report: messages.TrainReport) -> None:
        """Store a result.

        Raises:
            StaleLeaseError: the lease is lost.
            UnavailableError: the aggregator stayed down.
        """
        call = messages.Call(trained=report)
        self._send_outcome(lambda: self._call(call, CALL_SECONDS), REPORT_PATIENCE)
