import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby

import pytest

from modnorm.engines.settings import STAGE
from modnorm.errors import CancelledError, ModnormError, UnavailableError
from modnorm.services.evaluator.lease import CandidateLease, Heartbeats, longest_silence
from modnorm.services.evaluator.shutdown import LOAD_FACTOR, Shutdown
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import HANG_SECONDS, wait_until


def job(seconds: float = 30.0, job_id: str = "a") -> messages.Job:
    return messages.Job(lease=messages.Lease(job_id=job_id, token=7, seconds=seconds))


@contextmanager
def extended(
    heartbeats: Heartbeats, leased: messages.Job, shutdown: Shutdown, **options: float
) -> Iterator[CandidateLease]:
    lease = CandidateLease(heartbeats, leased, shutdown, **options)
    heartbeats.add(lease)
    try:
        yield lease
    finally:
        heartbeats.remove(lease)


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the evaluator's next step", pause=0.01)


def test_a_lease_shorter_than_three_heartbeat_intervals_is_extended_in_time(
    client, shutdown, aggregator
):
    with extended(Heartbeats(client, 100.0), job(seconds=0.3), shutdown) as held:
        held.progress(4)
        until(lambda: len(aggregator.heartbeats) > 2)
    assert aggregator.heartbeats[-1].answers_done == 4


def test_heartbeats_carry_each_stage_of_an_engines_start(client, shutdown, aggregator):
    def told():
        stages = [beat.engine_stage for beat in aggregator.heartbeats]
        return [stage for stage, _ in groupby(stages)]

    def has_told(stages):
        return len(told()) == stages

    heartbeats = Heartbeats(client, 100.0)
    STAGE.observe(heartbeats.send_soon)
    with extended(heartbeats, job(), shutdown):
        for done, stage in enumerate(("loading", "compiling", ""), start=1):
            STAGE.enter(stage)
            wait_until(partial(has_told, done), "the heartbeat with the stage")
    assert told() == ["loading", "compiling", ""]


@pytest.mark.parametrize(
    "error", [UnavailableError("down"), CancelledError("stopping"), ModnormError("a defect")]
)
def test_errors_of_the_aggregator_stop_no_job(client, shutdown, aggregator, error):
    aggregator.errors["Heartbeat"] = [error] * 8
    with extended(Heartbeats(client, 0.02), job(), shutdown) as held:
        deadline = time.monotonic() + HANG_SECONDS
        while not aggregator.heartbeats and time.monotonic() < deadline:
            held.progress(1)
            time.sleep(0.02)
    assert aggregator.heartbeats


def test_a_defect_costs_no_lease(client, shutdown, aggregator, monkeypatch):
    send, defects = client.heartbeat, iter([ArithmeticError, KeyError])

    def odd(calls):
        for defect in defects:
            raise defect
        return send(calls)

    monkeypatch.setattr(client, "heartbeat", odd)
    with extended(Heartbeats(client, 0.02), job(), shutdown):
        until(lambda: aggregator.heartbeats)


def test_a_lease_without_progress_is_not_extended(client, shutdown, aggregator):
    heartbeats = Heartbeats(client, 0.03)
    with extended(heartbeats, job(), shutdown, silence_seconds=0.1) as held:
        held.begins()
        until(lambda: not heartbeats._runs)
    assert len(aggregator.heartbeats) <= 5


@pytest.mark.parametrize("stall_seconds", [8.0, 600.0, 1200.0, 86_400.0])
def test_a_lease_outlasts_the_longest_load_that_the_watchdog_allows(stall_seconds):
    assert longest_silence(stall_seconds) >= 1800
    assert longest_silence(stall_seconds) > LOAD_FACTOR * stall_seconds


def test_heartbeats_arrive_in_order(client, shutdown, aggregator, monkeypatch):
    """The job begins while a heartbeat that marks it as waiting is in flight."""
    composed, overtaken, send = threading.Event(), threading.Event(), client.heartbeat

    def late(calls):
        if not composed.is_set():
            composed.set()
            overtaken.wait(0.2)
            return send(calls)
        answers = send(calls)
        overtaken.set()
        return answers

    monkeypatch.setattr(client, "heartbeat", late)
    with extended(Heartbeats(client, 0.02), job(), shutdown) as held:
        assert composed.wait(HANG_SECONDS)
        held.begins()
        until(lambda: len(aggregator.heartbeats) > 1)
        assert [beat.waits for beat in aggregator.heartbeats[:2]] == [True, False]


def test_a_begin_is_reported_at_once(client, shutdown, aggregator):
    """The job may crash the worker long before a heartbeat is due."""
    with extended(Heartbeats(client, 3600.0), job(seconds=10_800), shutdown) as held:
        held.begins()
        until(lambda: aggregator.heartbeats)
        assert [beat.waits for beat in aggregator.heartbeats] == [False]


def test_a_removed_lease_is_not_extended(client, shutdown, aggregator):
    heartbeats = Heartbeats(client, 0.02)
    with extended(heartbeats, job(), shutdown):
        with extended(heartbeats, job(job_id="b"), shutdown):
            until(lambda: ["a", "b"] in aggregator.said)
        aggregator.said.clear()
        until(lambda: len(aggregator.said) >= 3)
        assert aggregator.said[1:] == [["a"]] * (len(aggregator.said) - 1)
    until(lambda: not heartbeats._runs)
