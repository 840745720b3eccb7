"""The evaluator's calls to the aggregator, with deadlines, retries and this project's errors."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import grpc
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.stop import StopBaseT

from modnorm import __version__
from modnorm.errors import (
    CancelledError,
    CandidateError,
    ForbiddenError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    NotFoundError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
)
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.status import from_rpc_error

CALL_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
BULK_SECONDS = 300.0
"""Deadline of calls that stream rows, examples or answers."""
REPORT_PATIENCE = 600.0
"""Seconds that a finished result waits for an aggregator that is down."""
FAILURE_PATIENCE = 30.0
"""Seconds for which a failure is sent again; afterwards the lease expires."""
BYTES_PER_SECOND = 2**18
"""Slowest connection for which the deadline of a report suffices."""
LAST_SECONDS = 5.0
"""Deadline of a call after the grace period."""
_LOGGED_CLAIM = 5
"""A claim that waits logs each fifth failure: the first within 3 s, then about every 12 s."""
_CREDENTIALS_FIELD = "MODNORM_TOKEN_FILE"
_PASSING = (UnavailableError, UnauthenticatedError)
"""Errors that pass: the aggregator returns, or the worker's token is replaced."""

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class AggregatorClient:
    """Calls the aggregator; each call raises the error that the service returned."""

    def __init__(self, stub: JobServiceStub, *, worker: str, shutdown: Shutdown) -> None:
        self.worker = worker
        self._stub = stub
        self._shutdown = shutdown
        self.is_refused = False
        """Whether the last claim failed because the aggregator refuses this worker's token."""

    def claim(
        self, model_digest: str = "", unfit_experiments: Collection[str] = ()
    ) -> messages.Job | None:
        """Lease the next job; None if there is none for this worker."""
        request = messages.ClaimJobRequest(
            worker=self.worker,
            version=__version__,
            model_digest=model_digest,
            unfit_experiments=unfit_experiments,
        )
        response = self._retry(
            lambda: self._stub.ClaimJob(request, timeout=CALL_SECONDS),
            stop_when_event_set(self._shutdown.requested),
            sleep_using_event(self._shutdown.requested),
            passing=(*_PASSING, ForbiddenError),
            before_sleep=self._note_waiting_claim,
        )
        self.is_refused = False
        return response.job if response.HasField("job") else None

    def heartbeat(self, leases: Sequence[messages.LeaseProgress]) -> Sequence[messages.LeaseState]:
        """Extend leases by one call, without a retry; return the state of each in order."""
        request = messages.HeartbeatRequest(leases=leases)
        with call_errors():
            return self._stub.Heartbeat(request, timeout=HEARTBEAT_SECONDS).leases

    def report(self, report: messages.ReportJobRequest) -> None:
        seconds = CALL_SECONDS + report.ByteSize() / BYTES_PER_SECOND
        self._send_outcome(lambda: self._stub.ReportJob(report, timeout=seconds), REPORT_PATIENCE)

    def artifact(self, digest: str) -> str:
        """Return a stored text: rows as JSON lines, a scale map or a generator."""
        request = messages.FetchArtifactRequest(digest=digest)
        parts = partial(self._stub.FetchArtifact, request, timeout=BULK_SECONDS)
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

    def fail(
        self,
        lease: messages.Lease,
        kind: messages.FailureKind.ValueType,
        reason: str,
        remedy: str = "",
        *,
        unfit: bool = False,
    ) -> None:
        """Report that an attempt failed, or ended because the worker is unfit for the job.

        If that is impossible, it is logged, and the lease expires.
        """
        request = messages.FailJobRequest(
            lease=lease, kind=kind, reason=reason, remedy=remedy, unfit=unfit
        )
        try:
            self._send_outcome(lambda: self._stub.FailJob(request, timeout=self._deadline))
        except ModnormError as error:
            logger.warning("failure not reported: %s", error)

    def release(self, leases: Iterable[messages.Lease], reason: str) -> None:
        """Release jobs together, so that they share one wait for an aggregator that is down."""
        left = deque(leases)

        def release() -> None:
            while left:
                kind = messages.FAILURE_KIND_RELEASED
                request = messages.FailJobRequest(lease=left[0], kind=kind, reason=reason)
                try:
                    with call_errors():
                        self._stub.FailJob(request, timeout=self._deadline)
                except _PASSING:
                    raise
                except ModnormError as error:
                    logger.warning("not released: %s", error, extra={"job": left[0].job_id})
                left.popleft()

        try:
            self._send_outcome(release)
        except ModnormError as error:
            logger.warning("not released, the leases expire: %s", error)

    @property
    def _deadline(self) -> float:
        """Deadline of a call in seconds, shorter while the worker stops."""
        if not self._shutdown.requested.is_set():
            return CALL_SECONDS
        return min(CALL_SECONDS, max(LAST_SECONDS, -self._shutdown.overrun))

    def _fetch(self, call: Callable[[], ResultT]) -> ResultT:
        """Fetch an artifact of a job, with retries until the worker stops."""
        stop = stop_after_delay(FAILURE_PATIENCE) | stop_when_event_set(self._shutdown.requested)
        return self._retry(call, stop, sleep_using_event(self._shutdown.requested))

    def _send_outcome(
        self, call: Callable[[], object], patience: float = FAILURE_PATIENCE
    ) -> None:
        """Send the outcome of a job, with retries until the end of the grace period."""
        limit = stop_after_delay(patience)
        self._retry(
            call,
            lambda state: limit(state) or self._shutdown.is_overdue,
            self._shutdown.sleep,
            passing=_PASSING,
        )

    def _note_waiting_claim(self, state: RetryCallState) -> None:
        """Say why a claim waits, since an idle worker sends no heartbeat that would."""
        fault = state.outcome and state.outcome.exception()
        self.is_refused = isinstance(fault, UnauthenticatedError | ForbiddenError)
        if state.attempt_number % _LOGGED_CLAIM == 0:
            logger.warning("not claimed: %s; trying again", fault)

    @staticmethod
    def _retry(
        call: Callable[[], ResultT],
        stop: StopBaseT,
        sleep: Callable[[float], None],
        *,
        passing: tuple[type[ModnormError], ...] = (UnavailableError,),
        before_sleep: Callable[[RetryCallState], None] | None = None,
    ) -> ResultT:
        """Repeat a call while it fails with an error that passes; it may take effect twice."""

        def attempt() -> ResultT:
            with call_errors():
                return call()

        retrying = Retrying(
            retry=retry_if_exception_type(passing),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop,
            sleep=sleep,
            before_sleep=before_sleep,
            reraise=True,
        )
        return retrying(attempt)


@contextmanager
def call_errors() -> Iterator[None]:
    """Convert the errors of calls; a fault that passes is an `UnavailableError`."""
    try:
        yield
    except (grpc.RpcError, CancelledError) as error:
        converted = from_rpc_error(error) if isinstance(error, grpc.RpcError) else error
        if isinstance(converted, CancelledError):
            # A stopping server cancels its calls. Cancelled jobs are reported in heartbeats.
            raise UnavailableError(converted.message) from error
        raise converted from error
    except InvalidInputError as error:
        if error.field != _CREDENTIALS_FIELD:
            raise
        # The file may be replaced just now, which must not fail the experiment.
        raise UnavailableError(error.message) from error


def failure_kind(error: Exception, *, at_engine: bool) -> messages.FailureKind.ValueType:
    """Return the kind of a failed attempt, which decides whether the job is tried again.

    An invalid job fails in every attempt, as do all jobs of its experiment: `FATAL`. A refused
    report may succeed from another worker. Any other failure is of the worker, its machine or a
    service, and the job is tried again: `INFRASTRUCTURE`.
    """
    if isinstance(error, CandidateError) or (isinstance(error, TooLargeError) and not at_engine):
        return messages.FAILURE_KIND_CANDIDATE
    if isinstance(error, IncompatibleError):
        return messages.FAILURE_KIND_FATAL
    if isinstance(error, InvalidInputError | NotFoundError) and at_engine:
        return messages.FAILURE_KIND_FATAL
    return messages.FAILURE_KIND_INFRASTRUCTURE
