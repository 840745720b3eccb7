"""The calls of a worker that are made over and over: each by itself, or all over one stream."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Protocol

import grpc
from google.rpc import status_pb2
from typing_extensions import override

from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.status import from_status
from services.common.tracing import calls_are_traced
from services.evaluator.line import Line

CALL_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
BULK_SECONDS = 300.0
"""Deadline of calls that stream rows or answers."""
WHOLE_PARTS = 2
"""Parts of the largest report that goes as one message: a header and one batch of answers."""
TOGETHER_SECONDS = 0.02
"""How long a report may wait for the claim of the next job, to be one message with it."""

Parts = Iterator[messages.ReportJobRequest]
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED


class Calls(Protocol):
    """Each raises `grpc.RpcError`, or the error of `modnorm.errors` that the aggregator met."""

    def claim(self, request: messages.ClaimJobRequest) -> messages.ClaimJobResponse:
        """Ask for a job."""

    def heartbeat(self, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
        """Extend a lease, or several."""

    def report(self, parts: Parts) -> None:
        """Hand over a result."""

    def fail(self, request: messages.FailJobRequest, seconds: float) -> None:
        """Say that an attempt failed; the answer may take so long."""


class SingleCalls(Calls):
    """Each call by itself.

    Args:
        stub: A synchronous stub.
    """

    def __init__(self, stub: JobServiceStub) -> None:
        self._stub = stub

    @override
    def claim(self, request: messages.ClaimJobRequest) -> messages.ClaimJobResponse:
        return self._stub.ClaimJob(request, timeout=CALL_SECONDS)

    @override
    def heartbeat(self, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
        return self._stub.Heartbeat(request, timeout=HEARTBEAT_SECONDS)

    @override
    def report(self, parts: Parts) -> None:
        self._stub.ReportJob(parts, timeout=BULK_SECONDS)

    @override
    def fail(self, request: messages.FailJobRequest, seconds: float) -> None:
        self._stub.FailJob(request, timeout=seconds)


class StreamedCalls(Calls):
    """All calls over one stream, but for large reports: a fraction of what they cost otherwise.

    A report goes with the claim of the next job, as one message, where that comes about now.

    An aggregator without that rpc gets each call by itself; so does every aggregator where calls
    are traced, which makes each a span of its job's trace.

    Args:
        stub: A synchronous stub.
    """

    def __init__(self, stub: JobServiceStub) -> None:
        self._single = SingleCalls(stub)
        self._line = None if calls_are_traced() else Line(stub)
        self._claimed = ""
        """The job that was claimed last; empty while one is being claimed."""

    @property
    def single(self) -> bool:
        """Whether each call goes by itself."""
        return self._line is None

    @override
    def claim(self, request: messages.ClaimJobRequest) -> messages.ClaimJobResponse:
        self._claimed = ""
        answer = self._call(messages.WorkRequest(claim=request), CALL_SECONDS)
        response = self._single.claim(request) if answer is None else answer.claim
        self._claimed = response.job.lease.job_id
        return response

    @override
    def heartbeat(self, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
        answer = self._call(messages.WorkRequest(heartbeat=request), HEARTBEAT_SECONDS)
        return self._single.heartbeat(request) if answer is None else answer.heartbeat

    @override
    def report(self, parts: Parts) -> None:
        first = list(islice(parts, WHOLE_PARTS))
        more = next(parts, None)
        if more is None:
            whole = messages.WorkRequest(report=messages.WholeReport(parts=first))
            wait = TOGETHER_SECONDS if self._claims_soon(first) else 0.0
            if self._call(whole, CALL_SECONDS, wait) is not None:
                return
        rest = () if more is None else (more,)
        self._single.report(chain(first, rest, parts))

    @override
    def fail(self, request: messages.FailJobRequest, seconds: float) -> None:
        if self._call(messages.WorkRequest(fail=request), seconds) is None:
            self._single.fail(request, seconds)

    def _claims_soon(self, parts: Sequence[messages.ReportJobRequest]) -> bool:
        """Tell whether no job was claimed since that of a report."""
        return any(part.header.lease.job_id == self._claimed for part in parts[:1])

    def _call(
        self, request: messages.WorkRequest, seconds: float, wait: float = 0.0
    ) -> messages.WorkResponse | None:
        """Return the answer; None where there is no stream to ask over."""
        if self._line is None:
            return None
        try:
            answer = self._line.call(request, seconds, wait=wait)
        except grpc.RpcError as error:
            if not isinstance(error, grpc.Call) or error.code() is not _UNIMPLEMENTED:
                raise
            self._line = None
            return None
        if answer.WhichOneof("answer") == "status":
            raise from_status(status_pb2.Status.FromString(answer.status))
        return answer
