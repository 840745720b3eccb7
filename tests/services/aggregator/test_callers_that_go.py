"""Clients that go while what they asked for is being stored: it is followed up all the same."""

import asyncio
import threading

from modnorm.v1 import experiment_pb2

SECONDS = 60
NEVER = 3600.0
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED
SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING


class Held:
    """What stores something, held until the caller has gone.

    Args:
        store: The object.
        name: Its method.
    """

    def __init__(self, store, name):
        self._stores = getattr(store, name)
        self._begun, self._go_on = threading.Event(), threading.Event()
        setattr(store, name, self._hold)

    def _hold(self, *given):
        self._begun.set()
        self._go_on.wait(SECONDS)
        return self._stores(*given)

    async def lose(self, call):
        """Break a call off in the midst, and let it be stored then."""
        assert await asyncio.to_thread(self._begun.wait, SECONDS)
        call.cancel()
        await asyncio.sleep(0.3)  # for the server to hear of it
        self._go_on.set()


def test_an_experiment_begins_though_its_caller_goes_before_it_is_stored(start_lab, spec):
    async def scenario():
        async with start_lab(conduct_seconds=NEVER) as lab:
            await asyncio.sleep(0.3)  # the first look for experiments that nobody drives is over
            held = Held(lab.aggregator._stores.experiments, "create")
            request = experiment_pb2.CreateExperimentRequest(request_id="gone", spec=spec())
            await held.lose(lab.experiments.CreateExperiment(request))
            await lab.aggregator._experiments.settle()
            (created,) = (await lab.list()).experiments
            await asyncio.wait_for(lab.reach(created.id, SELECTING), SECONDS)

    asyncio.run(scenario())


def test_watchers_hear_of_a_cancellation_though_its_caller_goes(start_lab, spec):
    async def scenario():
        async with start_lab(watch_seconds=NEVER) as lab:
            created = await lab.create(spec())
            await lab.reach(created.id, SELECTING)
            watching = asyncio.create_task(lab.finish(created.id))
            held = Held(lab.aggregator._stores.experiments, "cancel")
            request = experiment_pb2.CancelExperimentRequest(id=created.id)
            await held.lose(lab.experiments.CancelExperiment(request))
            assert (await asyncio.wait_for(watching, SECONDS))[-1].state == CANCELLED

    asyncio.run(scenario())
