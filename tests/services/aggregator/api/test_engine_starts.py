"""The stages of an engine's start, from a worker's heartbeats to the events of an experiment."""

import grpc.aio
import pytest

from modnorm.errors import UnavailableError


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


async def test_an_experiment_does_not_wait_while_another_engine_answers(start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec())
        worker = lab.worker()
        answering, starting = await worker.claim_next(), await worker.claim_next()
        await lab.heartbeat(answering.lease, answers_done=1)
        assert await events_of(lab, starting, ["loading", ""]) == [READY]
