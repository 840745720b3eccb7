"""A worker's calls to the aggregator, with deadlines, retries and this project's errors."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
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

from modnorm.errors import (
    CancelledError,
    ForbiddenError,
    InvalidInputError,
    ModnormError,
    UnauthenticatedError,
    UnavailableError,
)
from modnorm.services.common.logging import naming
from modnorm.services.common.worker.shutdown import Shutdown
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
LAST_SECONDS = 5.0
"""Deadline of a call after the grace period."""
_LOGGED_CLAIM = 5
"""A claim that waits logs each fifth failure: the first within 3 s, then about every 12 s."""
_CREDENTIALS_FIELD = "MODNORM_TOKEN_FILE"

ResultT = TypeVar("ResultT")
JobT = TypeVar("JobT")

logger = logging.getLogger(__name__)


class AggregatorCalls:
    """The calls that every worker makes; each raises the error that the service returned.

    Args:
        stub: A synchronous stub.
        worker: Name of the worker in leases.
        shutdown: After its request only reports and failures are retried, in the grace period.
    """

    def __init__(self, stub: JobServiceStub, *, worker: str, shutdown: Shutdown) -> None:
        self.worker = worker
        self._version = version("modnorm")
        self._stub = stub
        self._shutdown = shutdown

    def _claim(self, job_id: str, model_digest: str) -> messages.ClaimJobResponse:
        """Lease a job; the response is empty if it needs no work.

        Waits for an aggregator that is down and for a token that it accepts. A worker that tried
        one job after another instead would take the messages of all workers.
        If the response to a claim is lost, the job stays leased until the lease expires.

        Raises:
            UnavailableError, UnauthenticatedError, ForbiddenError: the worker is stopping.
        """
        request = messages.ClaimJobRequest(
            job_id=job_id,
            worker=self.worker,
            version=self._version,
            model_digest=model_digest,
        )
        return self._retry(
            lambda: self._stub.ClaimJob(request, timeout=CALL_SECONDS),
            stop_when_event_set(self._shutdown.requested),
            sleep_using_event(self._shutdown.requested),
            passing=(UnavailableError, UnauthenticatedError, ForbiddenError),
            before_sleep=_log_waiting_claim,
        )

    def heartbeat(self, leases: Sequence[messages.LeaseProgress]) -> Sequence[messages.LeaseState]:
        """Extend leases by one call, without a retry; return the state of each in order."""
        request = messages.HeartbeatRequest(leases=leases)
        with call_errors():
            return self._stub.Heartbeat(request, timeout=HEARTBEAT_SECONDS).leases

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

        Raises:
            StaleLeaseError: the lease is lost.
            UnavailableError: the aggregator stayed down.
        """
        request = messages.FailJobRequest(
            lease=lease, kind=kind, reason=reason, remedy=remedy, unfit=unfit
        )
        self._send_outcome(lambda: self._stub.FailJob(request, timeout=self._deadline))

    def release(self, leases: Iterable[messages.Lease], reason: str) -> None:
        """Release jobs, with one wait for an aggregator that is down.

        Raises:
            UnavailableError: the aggregator stayed down; the leases expire.
        """
        left = deque(leases)

        def release() -> None:
            while left:
                kind = messages.FAILURE_KIND_RELEASED
                request = messages.FailJobRequest(lease=left[0], kind=kind, reason=reason)
                try:
                    with call_errors():
                        self._stub.FailJob(request, timeout=self._deadline)
                except UnavailableError:
                    raise
                except ModnormError as error:
                    logger.warning("not released: %s", error, extra={"job": left[0].job_id})
                left.popleft()

        self._send_outcome(release)

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
        """Send the outcome of a job, with retries until the end of the grace period.

        A refused token is no reason to lose an outcome: its file may hold a new one soon.
        """
        limit = stop_after_delay(patience)
        self._retry(
            call,
            lambda state: limit(state) or self._shutdown.is_overdue,
            self._shutdown.sleep,
            passing=(UnavailableError, UnauthenticatedError),
        )

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


def claim_or_log(claim: Callable[[str], JobT | None], job_id: str) -> JobT | None:
    """Return a claimed job; None, with the reason in the log, if it cannot or need not be run."""
    with naming(job=job_id):
        try:
            job = claim(job_id)
        except ModnormError as error:
            logger.warning("not claimed: %s", error)
            return None
        if job is None:
            logger.info("nothing to do")
        return job


def _log_waiting_claim(state: RetryCallState) -> None:
    """Say why a claim waits, since an idle worker sends no heartbeat that would."""
    if state.outcome is not None and state.attempt_number % _LOGGED_CLAIM == 0:
        logger.warning("not claimed: %s; trying again", state.outcome.exception())


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
