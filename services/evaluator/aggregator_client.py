"""The evaluator's calls to the aggregator."""

from collections.abc import Sequence
from functools import partial

from modnorm.services.common.worker.aggregator_calls import (
    BULK_SECONDS,
    CALL_SECONDS,
    REPORT_PATIENCE,
    AggregatorCalls,
)
from modnorm.v1 import evaluation_pb2 as messages

BYTES_PER_SECOND = 2**18
"""Slowest connection for which the deadline of a report suffices."""


class AggregatorClient(AggregatorCalls):
    """Calls the aggregator; each call raises the error that the service returned."""

    def claim(self, job_id: str, model_digest: str = "") -> messages.Job | None:
        """Lease a job, or one of the loaded model instead; None if it needs no work.

        Waits for an aggregator that is down.

        If the response to a claim is lost, the job stays leased until the lease expires.

        Raises:
            UnavailableError: the worker is stopping.
        """
        response = self._claim(job_id, model_digest)
        return response.job if response.HasField("job") else None

    def report(self, report: messages.ReportJobRequest) -> None:
        """Store a result.

        Raises:
            StaleLeaseError: the lease is lost.
            UnavailableError: the aggregator stayed down.
        """
        seconds = CALL_SECONDS + report.ByteSize() / BYTES_PER_SECOND
        self._send_outcome(lambda: self._stub.ReportJob(report, timeout=seconds), REPORT_PATIENCE)

    def rows(self, digest: str) -> Sequence[str]:
        """Return the rows of a split as JSON texts."""
        request = messages.FetchRowsRequest(rows_digest=digest)
        parts = partial(self._stub.FetchRows, request, timeout=BULK_SECONDS)
        return self._fetch(lambda: [row for part in parts() for row in part.rows_json])

    def scale_map(self, digest: str) -> str:
        """Return the canonical JSON of a scale map."""
        request = messages.GetScaleMapRequest(digest=digest)
        return self._fetch(lambda: self._stub.GetScaleMap(request, timeout=CALL_SECONDS).json)

    def answer_sheet(self, job_id: str) -> Sequence[messages.SheetAnswer]:
        """Return the answers of a finished job."""
        request = messages.FetchAnswerSheetRequest(job_id=job_id)
        parts = partial(self._stub.FetchAnswerSheet, request, timeout=BULK_SECONDS)
        return self._fetch(lambda: [answer for part in parts() for answer in part.answers])

    def generator(self, digest: str) -> str:
        """Return the JSON of a generator."""
        request = messages.FetchGeneratorRequest(digest=digest)
        parts = partial(self._stub.FetchGenerator, request, timeout=BULK_SECONDS)
        return self._fetch(lambda: b"".join(part.chunk for part in parts()).decode())

    def lineage(self, experiment_id: str, digest: str, after: int) -> tuple[str, list[str]]:
        """Return the origin of an iterative run, and its steps to a state as JSON texts."""
        request = messages.FetchLineageRequest(
            experiment_id=experiment_id, digest=digest, after=after
        )

        def fetch() -> tuple[str, list[str]]:
            parts = list(self._stub.FetchLineage(request, timeout=BULK_SECONDS))
            origin = parts[0].origin_json if parts else ""
            return origin, [step for part in parts for step in part.steps_json]

        return self._fetch(fetch)
