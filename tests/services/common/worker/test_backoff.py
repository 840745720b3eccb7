from modnorm.services.common.worker.backoff import (
    LONGEST_PAUSE,
    LONGEST_ROUND_PAUSE,
    UNFIT_PAUSE,
    JobBackoff,
)


def after(pauses: JobBackoff, *job_ids: str) -> list[float]:
    """Return the pauses after unfit jobs."""
    found = []
    for job_id in job_ids:
        pauses.begin()
        pauses.unfit(job_id)
        found.append(pauses.seconds)
    return found


def test_a_worker_waits_once_per_round_of_unfit_jobs() -> None:
    assert after(JobBackoff(), *"abcabcabc") == [
        *[UNFIT_PAUSE] * 3,
        *[2.0, UNFIT_PAUSE, UNFIT_PAUSE],
        *[4.0, UNFIT_PAUSE, UNFIT_PAUSE],
    ]


def test_a_single_unfit_job_is_tried_less_and_less_often() -> None:
    found = after(JobBackoff(), *["a"] * 2000)
    assert found == sorted(found)
    assert found[-1] == LONGEST_ROUND_PAUSE


def test_an_answered_job_ends_the_rounds() -> None:
    pauses = JobBackoff()
    after(pauses, *"aaa")
    pauses.begin()
    assert pauses.seconds == 0.0
    pauses.answered()
    assert after(pauses, *"aa") == [UNFIT_PAUSE, 2.0]


def test_failures_and_unfit_jobs_are_counted_separately() -> None:
    pauses = JobBackoff()
    for _ in range(3):
        pauses.failed(at_engine=True)
    assert after(pauses, "a") == [8.0]
    pauses.failed(at_engine=False)
    assert pauses.seconds == 16.0
    for _ in range(3):
        pauses.failed(at_engine=False)
    assert pauses.seconds == LONGEST_PAUSE
    pauses.reported()
    assert pauses.seconds == 8.0
    pauses.answered()
    pauses.begin()
    assert pauses.seconds == 0.0


def test_a_worker_that_fails_for_days_keeps_its_longest_pause() -> None:
    pauses = JobBackoff()
    for _ in range(2000):
        pauses.failed(at_engine=True)
    assert pauses.seconds == LONGEST_PAUSE
