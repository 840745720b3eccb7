"""Leases, and the heartbeats that extend them, one or many in a message."""

import threading

import pytest

from modnorm.services.aggregator.jobs.reporting import Reporting
from modnorm.services.aggregator.storage.tables import FailureKind
from modnorm.v1.evaluation_pb2 import Lease, LeaseProgress, LeaseState
from tests.services.aggregator.world import on_both_databases
from verification.labs.waiting import HANG_SECONDS

INFRASTRUCTURE = FailureKind.INFRASTRUCTURE

pytestmark = on_both_databases


def test_heartbeats_extend_the_lease(world):
    claim = world.claim_next(world.select())
    world.now += 59
    assert world.beat(claim) == LeaseState()
    world.now += 59
    assert world.jobs.expired() == ()
    world.now += 2
    assert world.jobs.expired() == (claim.job.id,)
    assert world.beat(claim) == LeaseState()
    assert world.jobs.expired() == ()
    assert world.jobs.reap(claim.job.id) is None


def test_a_lease_expires_although_the_clock_was_set_back(world):
    created = world.select()
    claim = world.claim_next(created)
    world.now -= 3_600
    assert world.jobs.expired() == (claim.job.id,)
    assert world.jobs.reap(claim.job.id) is None
    assert world.jobs.expired() == ()
    assert world.beat(claim) == LeaseState()
    world.now += 61
    assert world.jobs.expired() == (claim.job.id,)
    assert world.jobs.reap(claim.job.id).pending


def test_an_expired_lease_costs_a_waiting_job_no_attempt(world):
    created = world.select(failures={"max_attempts": 1})
    job = world.job_of(created, 0)
    for waits in (True, False):
        claim = world.claim(job.id)
        world.beat(claim, waits=True)
        if not waits:
            world.beat(claim)
        world.now += 61
        assert world.jobs.reap(job.id).pending == waits
        assert world.job_of(created, 0).attempts == (0 if waits else 1)


def test_leases_of_one_call_are_judged_separately(world):
    created = world.select(size=6)
    held = [world.claim(job_id) for job_id in world.pending(created)]
    gone = world.claim_next(world.select("gone", name="gone"))
    world.experiments.cancel(gone.experiment.id)
    lost, done, *held = held
    world.jobs.fail(lost.job.id, 1, FailureKind.RELEASED, "told to")
    world.claim(lost.job.id, "another")
    world.report(done)
    world.now += 59
    beats = [world.progress(one, waits=True) for one in (lost, *held, gone, done)]
    unknown = LeaseProgress(lease=Lease(job_id="nobody's", token=1))
    states = world.jobs.heartbeat([*beats, unknown])
    assert [bool(one.lost) for one in states] == [True, *[False] * (len(held) + 1), True, True]
    assert [one.cancel for one in states] == [False] * (len(held) + 1) + [True, False, False]
    world.now += 2
    assert world.jobs.expired() == (lost.job.id,)
    world.now += 59
    assert set(world.jobs.expired()) == {lost.job.id, *(one.job.id for one in held)}


def test_a_locked_job_delays_no_other_lease_and_is_not_lost(world):
    created = world.select()
    first, second = (world.claim(job_id) for job_id in world.pending(created)[:2])
    reporting, told = Reporting.store, list[LeaseState]()

    def beat():
        beats = [world.progress(one) for one in (first, second)]
        told.extend(world.jobs.heartbeat(beats))

    def beat_meanwhile(self, reports, sheets):
        answers = reporting(self, reports, sheets)
        threads.append(threading.Thread(target=beat))
        threads[0].start()
        if world.database._engine.dialect.name == "postgresql":
            threads[0].join(HANG_SECONDS)
            assert told == [LeaseState(), LeaseState()]
        return answers

    threads: list[threading.Thread] = []
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Reporting, "store", beat_meanwhile)
        world.report(first)
    threads[0].join()
    assert not told[1].lost
