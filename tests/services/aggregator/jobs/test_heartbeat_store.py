"""Leases, and the heartbeats that extend them, one or many in a message."""

import contextlib
import dataclasses
import threading
import time

import pytest
from sqlalchemy import event

from modnorm.errors import NotFoundError, StaleLeaseError
from modnorm.services.aggregator.jobs.reporting import Reporting
from modnorm.services.aggregator.jobs.worker_requests import Heartbeat
from modnorm.services.aggregator.storage.dialects import database_time
from modnorm.services.aggregator.storage.states import FailureKind, JobState
from tests.services.aggregator.world import LEASE_SECONDS, SingleCalls
from verification.labs.waiting import HANG_SECONDS

INFRASTRUCTURE = FailureKind.INFRASTRUCTURE


def test_heartbeats_extend_the_lease(world):
    claim = world.claim_next(world.select())
    world.now += 59
    assert not world.stores.jobs.heartbeat(claim.job.id, 1, 3)
    world.now += 59
    assert world.stores.jobs.expired() == ()
    world.now += 2
    assert world.stores.jobs.expired() == (claim.job.id,)
    assert not world.stores.jobs.heartbeat(claim.job.id, 1, 3)
    assert world.stores.jobs.expired() == ()
    assert world.stores.jobs.reap(claim.job.id) is None


def test_a_lease_expires_although_the_clock_was_set_back(world):
    created = world.select()
    claim = world.claim_next(created)
    world.now -= 3_600
    assert world.stores.jobs.expired() == (claim.job.id,)
    assert world.stores.jobs.reap(claim.job.id) is None
    assert world.stores.jobs.expired() == ()
    assert not world.stores.jobs.heartbeat(claim.job.id, 1, 3)
    world.now += 61
    assert world.stores.jobs.expired() == (claim.job.id,)
    assert world.stores.jobs.reap(claim.job.id).pending == (claim.job.id,)


def aggregator_with_clock(database, difference):
    """Return the jobs of an aggregator whose own clock differs by some seconds."""
    return SingleCalls(
        database, lease_seconds=LEASE_SECONDS, clock=lambda: time.time() + difference
    )


@pytest.mark.parametrize("difference", [-3_600, -45, 45, 3_600])
def test_aggregators_with_different_clocks_keep_each_others_leases(world, difference):
    job_id = world.stores.jobs.pending(world.select())[0]
    one, other = (aggregator_with_clock(world.database, seconds) for seconds in (0, difference))
    claim = one.claim(job_id, "w")
    assert other.expired() == ()
    assert not other.heartbeat(job_id, claim.job.token, 3)
    assert one.expired() == ()


def test_the_time_of_leases_passes_within_a_transaction(world):
    with world.database.read() as session:
        first = database_time(session)
        time.sleep(0.01)
        assert database_time(session) - first >= 0.01
        assert abs(first - time.time()) < HANG_SECONDS


def test_an_expired_lease_costs_a_parked_job_no_attempt(world):
    created = world.select(failures={"max_attempts": 1})
    job = world.job_of(created, 0)
    for parked in (True, False):
        claim = world.claim(job.id)
        beat = Heartbeat(job.id, claim.job.token, 3, parked=True)
        assert world.stores.jobs.heartbeat_all([beat]) == [False]
        if not parked:
            assert world.stores.jobs.heartbeat_all([dataclasses.replace(beat, parked=False)]) == [
                False
            ]
        world.now += 61
        assert world.stores.jobs.reap(job.id).pending == ((job.id,) if parked else ())
        assert world.job_of(created, 0).attempts == (0 if parked else 1)


def test_a_new_lease_is_not_parked(world):
    created = world.select(failures={"max_attempts": 1})
    job = world.job_of(created, 0)
    claim = world.claim(job.id)
    world.stores.jobs.heartbeat_all([Heartbeat(job.id, claim.job.token, 3, parked=True)])
    world.now += 61
    world.stores.jobs.reap(job.id)
    world.claim(job.id)
    world.now += 61
    assert world.stores.jobs.reap(job.id).pending == ()
    assert world.job_of(created, 0).state is JobState.FAILED


@contextlib.contextmanager
def statements(world):
    """Collect the statements that are executed meanwhile."""
    seen = []

    def note(_connection, _cursor, statement, *_):
        seen.append(statement)

    event.listen(world.database._engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(world.database._engine, "before_cursor_execute", note)


def test_many_leases_take_as_many_statements_as_few(world):
    created = world.select(size=15)
    held = [world.claim(job_id) for job_id in world.stores.jobs.pending(created)]
    gone = world.claim_next(world.select("gone", name="gone"))
    world.stores.experiments.cancel(gone.experiment.id)
    lost, done, *held = held
    world.stores.jobs.fail(lost.job.id, 1, FailureKind.RELEASED, "told to")
    world.claim(lost.job.id, "another")
    world.stores.jobs.report(world.report_of(done))
    world.now += 59
    beats = [Heartbeat(one.job.id, 1, 3, parked=True) for one in (lost, *held, gone, done)]
    with statements(world) as executed:
        answers = world.stores.jobs.heartbeat_all([*beats, Heartbeat("nobody's", 1, 0)])
    assert len(executed) <= 4
    assert [type(answer) for answer in answers] == [
        StaleLeaseError,
        *[bool] * (len(held) + 1),
        StaleLeaseError,
        NotFoundError,
    ]
    assert answers[1:-2] == [False] * len(held) + [True]
    world.now += 2
    assert world.stores.jobs.expired() == (lost.job.id,)
    world.now += 59
    assert set(world.stores.jobs.expired()) == {lost.job.id, *(one.job.id for one in held)}


def test_a_locked_job_delays_no_other_lease(world):
    created = world.select()
    first, second = (world.claim(job_id) for job_id in world.stores.jobs.pending(created)[:2])
    beats = [Heartbeat(one.job.id, 1, 3) for one in (first, second)]
    reporting = Reporting.store
    told: list[object] = []

    def beat_meanwhile(self, reports):
        answers = reporting(self, reports)
        threads.append(threading.Thread(target=lambda: told.extend(beat())))
        threads[0].start()
        return answers

    def beat():
        return world.stores.jobs.heartbeat_all(beats)

    threads: list[threading.Thread] = []
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Reporting, "store", beat_meanwhile)
        world.stores.jobs.report(world.report_of(first))
    threads[0].join()
    assert [type(answer) for answer in told] == [StaleLeaseError, bool]
