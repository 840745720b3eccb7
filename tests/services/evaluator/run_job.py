"""Run one job to its end in the calling thread."""

from services.evaluator.job_runner import JobRunner


def run_job(runner: JobRunner, job_id: str) -> None:
    """Begin a job as the engine's thread does, then finish parked jobs and the last report."""
    runner.begin(job_id)
    runner.finish_parked()
    runner._background.wait()
