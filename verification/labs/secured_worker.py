"""Calls of a worker without a model, for tests of invalid calls."""

from collections.abc import Sequence

import grpc

from modnorm.geometry.scale_map import ScaleMap
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from verification.labs.waiting import HANG_SECONDS


def claimed(
    channel: grpc.Channel,
    job_id: str,
    worker: str = "by-hand",
    *,
    seconds: float = HANG_SECONDS,
    unfit: Sequence[str] = (),
) -> messages.Job | None:
    """Lease a job, or any if the id is empty; None if it is not pending."""
    stub, others = JobServiceStub(channel), list[messages.Lease]()
    job = None
    while job is None:
        request = messages.ClaimJobRequest(worker=worker, unfit_experiments=unfit)
        claim = stub.ClaimJob(request, timeout=seconds)
        if not claim.HasField("job"):
            break
        if job_id in {claim.job.lease.job_id, ""}:
            job = claim.job
        else:
            others.append(claim.job.lease)
    for lease in others:
        released = messages.FailJobRequest(lease=lease, kind=messages.FAILURE_KIND_RELEASED)
        stub.FailJob(released, timeout=seconds)
    return job


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
) -> messages.ReportJobRequest:
    """Return a valid report of a job, whose answers may all be right."""
    stub = JobServiceStub(channel)
    fetch = messages.FetchRowsRequest(rows_digest=job.rows_digest)
    batches = stub.FetchRows(fetch, timeout=HANG_SECONDS)
    rows = sum(len(batch.rows_json) for batch in batches)
    wanted = messages.GetScaleMapRequest(digest=job.descriptor.scale_map_digest)
    active = len(ScaleMap.from_json(stub.GetScaleMap(wanted, timeout=HANG_SECONDS).json).active)
    report = messages.ReportJobRequest(
        lease=job.lease, descriptor=job.descriptor, worker="by-hand"
    )
    if not report.descriptor.coefficients:
        report.descriptor.coefficients.extend([0.5] * active)
    for row in range(rows):
        report.answers.add(
            row=row,
            completion="an answer",
            reward=reward,
            tokens=2,
            vote="1" if right else None,
            correct=right,
        )
    return report


def reported(channel: grpc.Channel, report: messages.ReportJobRequest) -> None:
    """Send a report."""
    JobServiceStub(channel).ReportJob(report, timeout=HANG_SECONDS)
