"""What only an asynchronous client can do: cancel its calls, and wait for several at a time."""

import asyncio
import threading

import pytest

from modnorm import AsyncClient
from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto
from verification.labs.waiting import HANG_SECONDS


class Silent:
    """Answers nothing until its caller goes away."""

    def __init__(self):
        self.asked = threading.Event()
        self.released = threading.Event()

    def get(self, request, context):
        self._notice_end(context)
        self._wait()
        return experiments.GetExperimentResponse()

    def watch(self, request, context):
        self._notice_end(context)  # a call that ends early is not asked for more
        yield experiments.WatchExperimentResponse(cursor=1)
        self._wait()

    def _notice_end(self, context):
        if not context.add_callback(self.released.set):  # the call is over already
            self.released.set()

    def _wait(self):
        self.asked.set()
        self.released.wait(HANG_SECONDS)


@pytest.fixture
def silent():
    return Silent()


@pytest.fixture
def target(serve, servicer, silent):
    return serve(servicer(GetExperiment=silent.get, WatchExperiment=silent.watch))


async def happens(signal):
    assert await asyncio.to_thread(signal.wait, HANG_SECONDS)


async def watched(client):
    return [event async for event in client.watch("e1")]


@pytest.mark.parametrize("start", [lambda client: client.get("e1"), watched])
async def test_a_cancelled_task_releases_its_call(target, silent, start):
    async with AsyncClient(target) as client:
        task = asyncio.create_task(start(client))
        await happens(silent.asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await happens(silent.released)


async def test_a_loop_that_is_left_releases_its_stream(target, silent):
    async with AsyncClient(target) as client:
        async for event in client.watch("e1"):
            assert event.cursor == 1
            break
        await happens(silent.released)


@pytest.mark.parametrize("start", [lambda client: client.get("e1"), watched])
async def test_what_waits_on_a_client_that_is_closed_says_so(target, silent, start):
    client = AsyncClient(target)
    task = asyncio.create_task(start(client))
    await happens(silent.asked)
    await client.close()
    with pytest.raises(PreconditionError, match="the connection is closed"):
        await task


async def test_calls_wait_side_by_side(serve, servicer, spec):
    both = threading.Barrier(2, timeout=HANG_SECONDS)

    def answer(request, context):
        both.wait()
        found = experiments.Experiment(id=request.id, spec=spec_to_proto(spec))
        return experiments.GetExperimentResponse(experiment=found)

    async with AsyncClient(serve(servicer(GetExperiment=answer))) as client:
        together = await asyncio.gather(client.get("e1"), client.get("e2"))
    assert [one.id for one in together] == ["e1", "e2"]
