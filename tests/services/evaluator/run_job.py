"""Run one job in the calling thread; types of the fixtures that make jobs and runners."""

from collections.abc import Callable

from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.v1.evaluation_pb2 import Job

AddJob = Callable[..., Job]
"""Adds a job with changed fields to the scripted aggregator."""
MakeRunner = Callable[..., JobRunner]


def begin_job(runner: JobRunner, job_id: str) -> None:
    """Claim and begin a job as the worker does; nothing if none can be leased."""
    client = runner._client
    name, client.worker = client.worker, job_id  # the scripted aggregator leases the job of it
    job = runner.claim()
    client.worker = name
    if job is not None:
        runner.begin(job)


def run_job(runner: JobRunner, job_id: str) -> None:
    """Begin a job, then finish its report."""
    begin_job(runner, job_id)
    runner._background.wait()
