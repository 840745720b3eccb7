import time

import pytest

from modnorm.errors import (
    CancelledError,
    ModnormError,
    NotFoundError,
    StaleLeaseError,
    UnavailableError,
)
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator import lease as lease_module
from services.evaluator.lease import HeldLease

SECONDS = 60.0
"""For what comes at once unless the machine is busy."""


def lease(seconds: float = 30.0) -> messages.Lease:
    return messages.Lease(job_id="a", token=7, seconds=seconds)


def wait_until_refused(held: HeldLease) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        held.progress(1)
        time.sleep(0.01)


def test_heartbeats_are_a_third_of_a_short_lease_apart(gateway, shutdown, aggregator) -> None:
    with HeldLease(gateway, lease(seconds=0.3), shutdown, seconds=100.0) as held:
        held.total = 9
        held.progress(4)
        began, seconds = time.monotonic(), 0.0
        while len(aggregator.heartbeats) < 3 and seconds < SECONDS:
            time.sleep(0.01)
            seconds = time.monotonic() - began
    assert 0.2 < seconds < SECONDS
    assert aggregator.heartbeats[-1].answers_done == 4
    assert aggregator.heartbeats[-1].answers_total == 9


def test_an_answer_may_cancel(gateway, shutdown, aggregator) -> None:
    aggregator.cancel = True
    with (
        pytest.raises(CancelledError),
        HeldLease(gateway, lease(), shutdown, seconds=0.02) as held,
    ):
        wait_until_refused(held)


@pytest.mark.parametrize("error", [StaleLeaseError("lost"), NotFoundError("no such job")])
def test_a_lost_lease_stops_the_work(gateway, shutdown, aggregator, error: ModnormError) -> None:
    aggregator.errors["Heartbeat"] = [error]
    with (
        pytest.raises(StaleLeaseError),
        HeldLease(gateway, lease(), shutdown, seconds=0.02) as held,
    ):
        wait_until_refused(held)
    assert aggregator.calls["Heartbeat"] == 1


@pytest.mark.parametrize(
    "error", [UnavailableError("down"), CancelledError("stopping"), ModnormError("a defect")]
)
def test_an_aggregator_in_trouble_stops_nothing(
    gateway, shutdown, aggregator, error: ModnormError
) -> None:
    aggregator.errors["Heartbeat"] = [error] * 8
    with HeldLease(gateway, lease(), shutdown, seconds=0.02) as held:
        deadline = time.monotonic() + SECONDS
        while not aggregator.heartbeats and time.monotonic() < deadline:
            held.progress(1)
            time.sleep(0.02)
    assert aggregator.heartbeats


def test_a_worker_without_progress_lets_its_lease_go(
    gateway, shutdown, aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "STALL_SECONDS", 0.1)
    with HeldLease(gateway, lease(), shutdown, seconds=0.03) as held:
        held._thread.join(SECONDS)
        assert not held._thread.is_alive()
    assert len(aggregator.heartbeats) <= 5
