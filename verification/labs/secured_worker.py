"""Calls of a worker without a model, for tests of invalid calls."""

from collections.abc import Sequence

import grpc
from google.rpc import status_pb2

from modnorm.geometry.scale_map import ScaleMap
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.status import from_status
from verification.labs.waiting import HANG_SECONDS


def replies_to(
    channel: grpc.Channel, *calls: messages.Call, seconds: float = HANG_SECONDS
) -> Sequence[messages.Reply]:
    """Send calls in one message of a new stream; return the replies.

    Raises:
        grpc.RpcError: the stream was refused.
    """
    message = messages.WorkRequest(calls=calls)
    (response,) = JobServiceStub(channel).Work(iter([message]), timeout=seconds)
    return response.replies


def reply_to(
    channel: grpc.Channel, call: messages.Call, *, seconds: float = HANG_SECONDS
) -> messages.Reply:
    """Make one call; return the reply.

    Raises:
        ModnormError: the call was refused.
        grpc.RpcError: the stream was refused.
    """
    (reply,) = replies_to(channel, call, seconds=seconds)
    if reply.status:
        raise from_status(status_pb2.Status.FromString(reply.status))
    return reply


def claimed(
    channel: grpc.Channel, job_id: str, worker: str = "by-hand", *, seconds: float = HANG_SECONDS
) -> messages.Job | None:
    """Lease a job; None if it is not pending."""
    request = messages.ClaimJobRequest(job_id=job_id, worker=worker)
    claim = reply_to(channel, messages.Call(claim=request), seconds=seconds).claim
    return claim.job if claim.HasField("job") else None


def leased(channel: grpc.Channel, job_id: str, worker: str = "by-hand") -> messages.Job:
    """Lease a pending job.

    Raises:
        ValueError: the job is not pending.
    """
    job = claimed(channel, job_id, worker)
    if job is None:
        raise ValueError(f"job {job_id} cannot be leased")
    return job


def report_of(
    channel: grpc.Channel, job: messages.Job, reward: float = 0.0, *, right: bool = False
) -> Sequence[messages.ReportJobRequest]:
    """Return a valid report of a job in two messages, whose answers may all be right."""
    stub = JobServiceStub(channel)
    fetch = messages.FetchRowsRequest(rows_digest=job.rows_digest)
    batches = stub.FetchRows(fetch, timeout=HANG_SECONDS)
    rows = sum(len(batch.rows_json) for batch in batches)
    wanted = messages.GetScaleMapRequest(digest=job.descriptor.scale_map_digest)
    active = len(ScaleMap.from_json(stub.GetScaleMap(wanted, timeout=HANG_SECONDS).json).active)
    header = messages.ReportHeader(lease=job.lease, descriptor=job.descriptor, worker="by-hand")
    if not header.descriptor.coefficients:
        header.descriptor.coefficients.extend([0.5] * active)
    answers = [
        messages.Answer(
            row=row,
            completion="an answer",
            reward=reward,
            tokens=2,
            vote="1" if right else None,
            correct=right,
        )
        for row in range(rows)
    ]
    return (
        messages.ReportJobRequest(header=header),
        messages.ReportJobRequest(answers=messages.AnswerBatch(answers=answers)),
    )


def reported(channel: grpc.Channel, parts: Sequence[messages.ReportJobRequest]) -> None:
    """Send a report."""
    JobServiceStub(channel).ReportJob(iter(parts), timeout=HANG_SECONDS)
