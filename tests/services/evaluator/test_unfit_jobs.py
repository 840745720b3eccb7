"""Jobs that a worker cannot do: others run, and the queue is polled slowly."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from typing_extensions import override

from modnorm.services.common.queue import make_celery, publish
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.worker.backoff import (
    ReconnectBackoff,
)
from modnorm.services.evaluator.celery_worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import HANG_SECONDS, wait_until

AddJob = Callable[..., messages.Job]


@pytest.fixture
def broker_url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def working(target: str, broker_url: str) -> Iterator[Worker]:
    worker = Worker(
        EvaluatorSettings(
            bind_address="127.0.0.1:0",
            broker_url=broker_url,
            aggregator_target=target,
            heartbeat_seconds=0.1,
            stop_grace=0.0,
            worker_name="w",
            torch_threads=1,
        )
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield worker
    worker.stop()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


@pytest.mark.usefixtures("working")
def test_other_jobs_run_after_unfit_ones(broker_url: str, aggregator, add_job: AddJob) -> None:
    app = make_celery(broker_url)
    began = time.monotonic()
    for number in range(8):
        add_job(f"program{number}", task="mbpp")
        publish(app, f"program{number}")
    add_job("good")
    publish(app, "good")
    aggregator.wait_for("good")
    assert set(aggregator.reports) == {"good"}
    assert [failure.unfit for failure in aggregator.failures.values()] == [True] * 8
    # If each counted as a failure: 2 + 4 + ... + 60 seconds.
    assert time.monotonic() - began < 30.0


class Returning(dict[str, messages.Job]):
    """Jobs that are published again as soon as they are released, as by an aggregator."""

    publish: Callable[[str], None]

    def __init__(self) -> None:
        self.claimed: list[tuple[str, float]] = []
        """Job and monotonic time of each claim."""

    @override
    def pop(self, key: str, default: object = None) -> messages.Job | None:  # type: ignore[override]  # as the test calls it
        self.claimed.append((key, time.monotonic()))
        self.publish(key)
        return self.get(key)


@pytest.mark.usefixtures("working")
def test_a_queue_of_unfit_jobs_is_polled_slowly(
    broker_url: str, aggregator, add_job: AddJob
) -> None:
    app = make_celery(broker_url)
    returning = aggregator.jobs = Returning()
    returning.publish = lambda job_id: publish(app, job_id)
    for number in range(3):
        add_job(f"program{number}", task="mbpp")
        publish(app, f"program{number}")
    wait_until(lambda: len(returning.claimed) > 4, "a second round")
    jobs, times = zip(*returning.claimed, strict=True)
    returned = next(place for place, job in enumerate(jobs) if job in jobs[:place])
    assert times[returned + 1] - times[returned] >= 2.0


def test_pauses_double_up_to_a_bound_and_reset_after_success():
    now = [0.0]
    backoff = ReconnectBackoff(0.5, 3.0, clock=lambda: now[0])
    pauses = []
    for lasted in (0, 0, 1, 0, 2.9, 3.1, 0):
        now[0] += lasted
        pauses.append(backoff.after_failure())
        now[0] += pauses[-1]
    assert pauses == [0.5, 1, 2, 3, 3, 0.5, 1]
