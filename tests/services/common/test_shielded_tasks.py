import asyncio

import pytest

from modnorm.services.common.background import ShieldedTasks


async def test_a_result_is_undelivered_if_its_caller_leaves_at_the_end():
    begun, end, undelivered = asyncio.Event(), asyncio.Event(), list[str]()

    async def work():
        begun.set()
        await end.wait()
        return "result"

    tasks = ShieldedTasks()
    caller = asyncio.create_task(tasks.run(work(), undelivered.append))
    await begun.wait()
    end.set()
    (task,) = tasks._tasks
    task.add_done_callback(lambda _: caller.cancel())
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)
    assert undelivered == ["result"]
