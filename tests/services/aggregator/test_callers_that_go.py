"""Clients that go while what they asked for is being stored: it is followed up all the same."""

import asyncio

from modnorm.v1 import experiment_pb2
from verification.labs.waiting import HANG_SECONDS

NEVER = 3600.0
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED
SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING


def test_an_experiment_begins_though_its_caller_goes_before_it_is_stored(
    start_lab, spec, make_gone
):
    async def scenario():
        async with start_lab(conduct_seconds=NEVER) as lab:
            await asyncio.sleep(0.3)  # the first look for experiments that nobody drives is over
            servicer = lab.aggregator._experiments
            gone = make_gone((servicer._stores.experiments, "create"), (servicer, "_create"))
            request = experiment_pb2.CreateExperimentRequest(request_id="gone", spec=spec())
            await gone.goes(lab.experiments.CreateExperiment(request), servicer.settle)
            (created,) = (await lab.list()).experiments
            await asyncio.wait_for(lab.reach(created.id, SELECTING), HANG_SECONDS)

    asyncio.run(scenario())


def test_watchers_hear_of_a_cancellation_though_its_caller_goes(start_lab, spec, make_gone):
    async def scenario():
        async with start_lab(watch_seconds=NEVER) as lab:
            created = await lab.create(spec())
            await lab.reach(created.id, SELECTING)
            watching = asyncio.create_task(lab.finish(created.id))
            servicer = lab.aggregator._experiments
            gone = make_gone((servicer._stores.experiments, "cancel"), (servicer, "_cancel"))
            request = experiment_pb2.CancelExperimentRequest(id=created.id)
            await gone.goes(lab.experiments.CancelExperiment(request), servicer.settle)
            assert (await asyncio.wait_for(watching, HANG_SECONDS))[-1].state == CANCELLED

    asyncio.run(scenario())
