"""Requests of clients that disconnect during the write are followed up."""

import asyncio

from modnorm.v1 import experiment_pb2
from verification.labs.waiting import HANG_SECONDS

NEVER = 3600.0
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED
SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING


async def test_an_experiment_starts_even_if_its_caller_disconnects(start_lab, spec, make_gone):
    async with start_lab(conduct_seconds=NEVER) as lab:
        await asyncio.sleep(0.3)  # the first search for experiments in setup is over
        tasks = lab.aggregator._tasks
        gone = make_gone(tasks, (lab.aggregator._stores.experiments, "create"))
        request = experiment_pb2.CreateExperimentRequest(request_id="gone", spec=spec())
        await gone.goes(lab.experiments.CreateExperiment(request), tasks.settle)
        (created,) = (await lab.list()).experiments
        await asyncio.wait_for(lab.reach(created.id, SELECTING), HANG_SECONDS)


async def test_a_cancellation_reaches_watchers_if_its_caller_disconnects(
    start_lab, spec, make_gone
):
    async with start_lab() as lab:
        created = await lab.create(spec())
        await lab.reach(created.id, SELECTING)
        watching = asyncio.create_task(lab.finish(created.id))
        tasks = lab.aggregator._tasks
        gone = make_gone(tasks, (lab.aggregator._stores.experiments, "cancel"))
        request = experiment_pb2.CancelExperimentRequest(id=created.id)
        await gone.goes(lab.experiments.CancelExperiment(request), tasks.settle)
        assert (await asyncio.wait_for(watching, HANG_SECONDS))[-1].state == CANCELLED
