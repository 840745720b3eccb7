"""The evaluator's calls to the aggregator: deadlines, retries and this project's errors."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from typing import TypeVar

import grpc
from google.rpc import status_pb2
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.stop import StopBaseT

from modnorm.errors import (
    CancelledError,
    InvalidInputError,
    ModnormError,
    UnavailableError,
)
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.status import from_rpc_error, from_status
from services.common.tracing import add_trace_context
from services.evaluator.shutdown import Shutdown
from services.evaluator.work_stream import WorkStream

CALL_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
BULK_SECONDS = 300.0
"""Deadline of calls that stream rows or answers."""
WHOLE_PARTS = 2
"""Parts of the largest report that goes as one message: a header and one batch of answers."""
REPORT_PATIENCE = 600.0
"""Seconds that a finished result waits for an aggregator that is down."""
FAILURE_PATIENCE = 30.0
"""Seconds that the news of a failure wait; the lease then expires."""
LAST_SECONDS = 5.0
"""Seconds that an answer may take once the grace period is over."""
_SHOWN_FILE = "MODNORM_TOKEN_FILE"

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class AggregatorClient:
    """Calls the aggregator; each call raises the error that the service met.

    Claims, heartbeats, failures and short reports share one stream.

    Args:
        stub: A synchronous stub.
        worker: Name that leases are held under.
        shutdown: Once requested, only reports and failures are retried, in the grace period.
    """

    def __init__(self, stub: JobServiceStub, *, worker: str, shutdown: Shutdown) -> None:
        self.worker = worker
        self._version = version("modnorm")
        self._stub = stub
        self._stream = WorkStream(stub)
        self._shutdown = shutdown

    def claim(self, job_id: str) -> messages.Job | None:
        """Lease a job; None when there is nothing to do. Waits for an aggregator that is down.

        A claim whose answer was lost holds the job until the lease ends; then it is offered again.

        Raises:
            UnavailableError: the worker is stopping.
        """
        request = messages.ClaimJobRequest(
            job_id=job_id, worker=self.worker, version=self._version
        )
        response = self._retry(
            lambda: self._call(messages.Call(claim=request), CALL_SECONDS).claim,
            stop_when_event_set(self._shutdown.requested),
            sleep_using_event(self._shutdown.requested),
        )
        return response.job if response.HasField("job") else None

    def heartbeats(
        self, calls: Sequence[messages.Call]
    ) -> Sequence[messages.HeartbeatResponse | ModnormError]:
        """Extend leases by one message, without a retry.

        Args:
            calls: A heartbeat for each lease.

        Returns:
            In order, the response to each heartbeat, or why the lease is not extended.
        """
        try:
            with _errors():
                replies = self._stream.call(calls, HEARTBEAT_SECONDS)
        except ModnormError as error:
            return [error for _ in calls]
        return [_refusal(reply) or reply.heartbeat for reply in replies]

    def report(self, parts: Callable[[], Iterator[messages.ReportJobRequest]]) -> None:
        """Store a result; `parts` is called again for each attempt.

        Raises:
            StaleLeaseError: the lease is lost.
            UnavailableError: the aggregator stayed away.
        """
        self._tell(lambda: self._report(parts()), REPORT_PATIENCE)

    def fail(
        self,
        lease: messages.Lease,
        kind: messages.FailureKind.ValueType,
        reason: str,
        remedy: str = "",
    ) -> None:
        """Say that an attempt failed.

        Raises:
            StaleLeaseError: the lease is lost.
            UnavailableError: the aggregator stayed away.
        """
        request = messages.FailJobRequest(lease=lease, kind=kind, reason=reason, remedy=remedy)
        self._tell(lambda: self._call(messages.Call(fail=request), self._patience))

    def hand_back(self, leases: Iterable[messages.Lease], reason: str) -> None:
        """Hand jobs back, with one wait for an absent aggregator.

        Raises:
            UnavailableError: it stayed away; the leases expire.
        """
        left = deque(leases)

        def hand_back() -> None:
            while left:
                kind = messages.FAILURE_KIND_RELEASED
                request = messages.FailJobRequest(lease=left[0], kind=kind, reason=reason)
                try:
                    with _errors():
                        self._call(messages.Call(fail=request), self._patience)
                except UnavailableError:
                    raise
                except ModnormError as error:
                    logger.warning("not handed back: %s", error, extra={"job": left[0].job_id})
                left.popleft()

        self._tell(hand_back)

    @property
    def _patience(self) -> float:
        """Seconds that an answer may take, so that a stop is not kept waiting for long."""
        if not self._shutdown.requested.is_set():
            return CALL_SECONDS
        return min(CALL_SECONDS, max(LAST_SECONDS, -self._shutdown.overrun))

    def find_jobs(self, model_digest: str) -> Sequence[str]:
        """Return ids of a few pending jobs of a model, without leasing them."""
        request = messages.FindJobsRequest(model_digest=model_digest)
        with _errors():
            return list(self._stub.FindJobs(request, timeout=CALL_SECONDS).job_ids)

    def rows(self, digest: str) -> Sequence[str]:
        """Return the rows of a split as JSON texts."""
        request = messages.FetchRowsRequest(rows_digest=digest)
        parts = partial(self._stub.FetchRows, request, timeout=BULK_SECONDS)
        return self._fetch(lambda: [row for part in parts() for row in part.rows_json])

    def scale_map(self, digest: str) -> str:
        """Return the canonical JSON of a scale map."""
        request = messages.GetScaleMapRequest(digest=digest)
        return self._fetch(lambda: self._stub.GetScaleMap(request, timeout=CALL_SECONDS).json)

    def generator(self, digest: str) -> str:
        """Return the JSON of a generator."""
        request = messages.FetchGeneratorRequest(digest=digest)
        parts = partial(self._stub.FetchGenerator, request, timeout=BULK_SECONDS)
        return self._fetch(lambda: b"".join(part.chunk for part in parts()).decode())

    def lineage(self, experiment_id: str, digest: str, after: int) -> tuple[str, list[str]]:
        """Return the origin of an iterative run, and its steps to a state as JSON texts.

        Args:
            experiment_id: The run.
            digest: The state.
            after: Steps that are known already.
        """
        request = messages.FetchLineageRequest(
            experiment_id=experiment_id, digest=digest, after=after
        )

        def fetch() -> tuple[str, list[str]]:
            parts = list(self._stub.FetchLineage(request, timeout=BULK_SECONDS))
            origin = parts[0].origin_json if parts else ""
            return origin, [step for part in parts for step in part.steps_json]

        return self._fetch(fetch)

    def _report(self, parts: Iterator[messages.ReportJobRequest]) -> None:
        """Send a report over the stream if it fits one message, by a call of its own if not."""
        first = list(islice(parts, WHOLE_PARTS))
        more = next(parts, None)
        if more is None:
            whole = messages.WholeReport(parts=first)
            self._call(messages.Call(report=whole), CALL_SECONDS)
        else:
            self._stub.ReportJob(chain(first, (more,), parts), timeout=BULK_SECONDS)

    def _call(self, call: messages.Call, seconds: float) -> messages.Reply:
        """Make a call over the stream, in the current trace."""
        (reply,) = self._stream.call([add_trace_context(call)], seconds)
        refusal = _refusal(reply)
        if refusal is not None:
            raise refusal
        return reply

    def _fetch(self, call: Callable[[], ResultT]) -> ResultT:
        """Read something that a job needs, unless the worker stops."""
        stop = stop_after_delay(FAILURE_PATIENCE) | stop_when_event_set(self._shutdown.requested)
        return self._retry(call, stop, sleep_using_event(self._shutdown.requested))

    def _tell(self, call: Callable[[], object], patience: float = FAILURE_PATIENCE) -> None:
        """Say what became of a job, until the grace period of a stop is over."""
        limit = stop_after_delay(patience)
        self._retry(
            call, lambda state: limit(state) or self._shutdown.overdue, self._shutdown.sleep
        )

    @staticmethod
    def _retry(
        call: Callable[[], ResultT], stop: StopBaseT, sleep: Callable[[float], None]
    ) -> ResultT:
        """Make a call until it gets through; it may be made twice."""

        def attempt() -> ResultT:
            with _errors():
                return call()

        retrying = Retrying(
            retry=retry_if_exception_type(UnavailableError),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop,
            sleep=sleep,
            reraise=True,
        )
        return retrying(attempt)


def _refusal(reply: messages.Reply) -> ModnormError | None:
    return from_status(status_pb2.Status.FromString(reply.status)) if reply.status else None


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (grpc.RpcError, CancelledError) as error:
        met = from_rpc_error(error) if isinstance(error, grpc.RpcError) else error
        if isinstance(met, CancelledError):
            # A server that stops cancels its calls. Unwanted work has another answer.
            raise UnavailableError(met.message) from error
        raise met from error
    except InvalidInputError as error:
        if error.field != _SHOWN_FILE:
            raise
        # The file is being replaced, which must not fail the experiment.
        raise UnavailableError(error.message) from error
