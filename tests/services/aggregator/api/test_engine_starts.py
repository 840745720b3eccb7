"""The stages of an engine's start, from a worker's heartbeats to the events of an experiment."""

import asyncio
import threading

import grpc.aio
import pytest

from modnorm.errors import UnavailableError
from verification.labs.waiting import HANG_SECONDS


async def events_of(lab, job, stages):
    """Send a heartbeat with each stage; return message, wait and stage of the new events."""
    before = (await lab.get(job.experiment_id)).last_cursor
    for stage in stages:
        await lab.heartbeat(job.lease, engine_stage=stage)
    await lab.cancel(job.experiment_id)
    events = [event async for event in lab.watch(job.experiment_id, before)]
    return [(one.message, one.waits_for, one.progress.engine_stage) for one in events[:-1]]


def started(stage):
    message = f"the engine starts: {stage}"
    return message, message, stage


READY = ("the engine is ready", "", "")


async def test_each_stage_is_an_event_and_so_is_the_end(start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec())
        job = await lab.worker().claim_next()
        stages = ["", "loading", "loading", "compiling", "", ""]
        assert await events_of(lab, job, stages) == [
            started("loading"),
            started("compiling"),
            READY,
        ]


async def test_a_stage_that_could_not_be_stored_is_stored_at_the_next_heartbeat(
    start_lab, spec, monkeypatch
):
    async with start_lab() as lab:
        await lab.create(spec())
        job = await lab.worker().claim_next()

        def fail(*_):
            raise UnavailableError("the database did not answer")

        monkeypatch.setattr(lab.aggregator._job_store, "record_start", fail)
        with pytest.raises(grpc.aio.AioRpcError):
            await lab.heartbeat(job.lease, engine_stage="loading")
        monkeypatch.undo()
        assert await events_of(lab, job, ["loading"]) == [started("loading")]


@pytest.fixture
def held_beat(monkeypatch):
    """Send a heartbeat, but hold the storage of its stage; return its task and the release."""

    async def hold(lab, job):
        store, at_it, may_go_on = lab.aggregator._job_store, threading.Event(), threading.Event()
        record = store.record_start

        def held(*arguments):
            at_it.set()
            assert may_go_on.wait(HANG_SECONDS)
            return record(*arguments)

        monkeypatch.setattr(store, "record_start", held)
        beat = asyncio.create_task(lab.heartbeat(job.lease, engine_stage="loading"))
        assert await asyncio.to_thread(at_it.wait, HANG_SECONDS)
        return beat, may_go_on

    return hold


async def test_a_job_that_is_released_while_its_stage_is_stored_starts_anew(
    start_lab, spec, held_beat
):
    async with start_lab() as lab:
        await lab.create(spec())
        worker = lab.worker()
        job = await worker.claim_next()
        beat, may_go_on = await held_beat(lab, job)
        await lab.fail(job.lease, "RELEASED")
        may_go_on.set()
        await beat
        again = await worker.claim_next()
        while again.lease.job_id != job.lease.job_id:
            again = await worker.claim_next()
        assert await events_of(lab, again, ["loading"]) == [started("loading")]


async def test_a_job_whose_lease_expired_starts_anew(start_lab, spec):
    async with start_lab(lease_seconds=1.0) as lab:
        await lab.create(spec())
        worker = lab.worker()
        job = await worker.claim_next()
        await lab.heartbeat(job.lease, engine_stage="loading")
        again = await worker.claim_next()
        while again.lease.job_id != job.lease.job_id:
            again = await worker.claim_next()
        assert started("loading") in await events_of(lab, again, ["loading"])


async def test_the_stage_of_a_cancelled_heartbeat_is_stored_and_seen(start_lab, spec, held_beat):
    async with start_lab() as lab:
        await lab.create(spec())
        job = await lab.worker().claim_next()
        before = (await lab.get(job.experiment_id)).last_cursor
        beat, may_go_on = await held_beat(lab, job)
        beat.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beat
        may_go_on.set()
        event = await asyncio.wait_for(anext(lab.watch(job.experiment_id, before)), HANG_SECONDS)
        assert event.progress.engine_stage == "loading"
        assert await events_of(lab, job, ["loading", ""]) == [READY]


async def test_a_stage_in_two_heartbeats_at_once_is_one_event(start_lab, spec, held_beat):
    async with start_lab() as lab:
        await lab.create(spec())
        job = await lab.worker().claim_next()
        before = (await lab.get(job.experiment_id)).last_cursor
        beat, may_go_on = await held_beat(lab, job)
        beats = [beat, asyncio.create_task(lab.heartbeat(job.lease, engine_stage="loading"))]
        await asyncio.wait(beats, timeout=0.3, return_when=asyncio.FIRST_COMPLETED)
        may_go_on.set()
        await asyncio.gather(*beats)
        assert (await lab.get(job.experiment_id)).last_cursor == before + 1


async def test_an_experiment_does_not_wait_while_another_engine_answers(start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec())
        worker = lab.worker()
        answering, starting = await worker.claim_next(), await worker.claim_next()
        await lab.heartbeat(answering.lease, answers_done=1)
        assert await events_of(lab, starting, ["loading", ""]) == [READY]
