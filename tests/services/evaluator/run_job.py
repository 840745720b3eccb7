"""Run one job in the calling thread; types of the fixtures that make jobs and runners."""

from collections.abc import Callable

from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.v1.evaluation_pb2 import Job

AddJob = Callable[..., Job]
"""Adds a job with changed fields to the scripted aggregator."""
MakeRunner = Callable[..., JobRunner]


def begin_job(runner: JobRunner, job: Job | str) -> None:
    """Claim and begin a job, or one by its id, as the worker does; nothing if none is there."""
    client = runner._client
    name = client.worker
    # The scripted aggregator leases the job of this name.
    client.worker = job if isinstance(job, str) else job.lease.job_id
    claimed = runner.claim()
    client.worker = name
    if claimed is not None:
        runner.begin(claimed)


def run_job(runner: JobRunner, job: Job | str) -> None:
    """Begin a job, then finish its report."""
    begin_job(runner, job)
    runner._background.wait()
