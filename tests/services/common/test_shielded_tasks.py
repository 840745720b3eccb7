import asyncio

import pytest

from modnorm.errors import NotFoundError
from modnorm.services.common.background import ShieldedTasks


class Work:
    """Work that finishes on request."""

    def __init__(self, error=None):
        self.begun, self.end = asyncio.Event(), asyncio.Event()
        self._error = error

    async def __call__(self):
        self.begun.set()
        await self.end.wait()
        if self._error is not None:
            raise self._error
        return "result"


async def left(tasks, work, undelivered):
    """Run work whose caller leaves before its end."""
    caller = asyncio.create_task(tasks.run(work(), undelivered))
    await work.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_waiting_caller_gets_the_result_or_the_error(caplog):
    tasks, undelivered = ShieldedTasks(), list[str]()
    for error in (None, NotFoundError("gone"), ArithmeticError()):
        work = Work(error)
        work.end.set()
        if error is None:
            assert await tasks.run(work(), undelivered.append) == "result"
        else:
            with pytest.raises(type(error)):
                await tasks.run(work(), undelivered.append)
    assert not undelivered
    assert not caplog.records


async def test_work_finishes_even_if_its_caller_leaves():
    tasks, work, undelivered = ShieldedTasks(), Work(), list[str]()
    await left(tasks, work, undelivered.append)
    settling = asyncio.create_task(tasks.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    work.end.set()
    await settling
    assert undelivered == ["result"]


async def test_a_result_is_undelivered_if_its_caller_leaves_at_the_end():
    tasks, work, undelivered = ShieldedTasks(), Work(), list[str]()
    caller = asyncio.create_task(tasks.run(work(), undelivered.append))
    await work.begun.wait()
    work.end.set()
    (task,) = tasks._tasks
    task.add_done_callback(lambda _: caller.cancel())
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)
    assert undelivered == ["result"]


async def test_follow_up_work_is_waited_for_too():
    tasks, work, after = ShieldedTasks(), Work(), Work()
    await left(tasks, work, lambda _: tasks.start(after()))
    work.end.set()
    settling = asyncio.create_task(tasks.settle())
    await after.begun.wait()
    assert not settling.done()
    after.end.set()
    await settling
