import asyncio
import gc
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from modnorm.errors import NotFoundError
from services.aggregator.lanes import LARGEST_BATCH, Lane
from verification.labs.waiting import HANG_SECONDS


class Gate:
    """Work that notes its batches, and waits in the first one until it is let go on."""

    def __init__(self):
        self.batches = []
        self.began, self.open = threading.Event(), threading.Event()

    def work(self, numbers):
        self.batches.append(list(numbers))
        self.began.set()
        assert self.open.wait(HANG_SECONDS)
        return [NotFoundError(f"no {one}") if one % 10 == 3 else one * one for one in numbers]


def run(scenario):
    with ThreadPoolExecutor(1) as thread:
        asyncio.run(asyncio.wait_for(scenario(thread), HANG_SECONDS))


async def submitted(lane, gate, numbers):
    """Submit numbers while the first of them is worked on."""
    first = lane.submit(numbers[0])
    await asyncio.to_thread(gate.began.wait)
    return [first, *(lane.submit(number) for number in numbers[1:])]


def test_calls_that_arrive_together_are_one_batch_and_have_answers_of_their_own():
    async def scenario(thread):
        gate = Gate()
        asked = await submitted(Lane(thread, gate.work), gate, range(20))
        gate.open.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert gate.batches == [[0], list(range(1, 20))]
        for number, answer in enumerate(answers):
            if number % 10 == 3:
                assert isinstance(answer, NotFoundError)
                assert answer.message == f"no {number}"
            else:
                assert answer == number * number

    run(scenario)


def test_batches_are_bounded_and_nobody_is_forgotten():
    async def scenario(thread):
        gate = Gate()
        gate.open.set()
        lane = Lane(thread, gate.work)
        numbers = [10 * one for one in range(3 * LARGEST_BATCH)]
        assert await asyncio.gather(*map(lane.submit, numbers)) == [one * one for one in numbers]
        assert max(map(len, gate.batches)) == LARGEST_BATCH
        assert list(itertools.chain(*gate.batches)) == numbers
        assert await lane.submit(5) == 25

    run(scenario)


def test_a_caller_that_leaves_takes_nobody_along():
    async def scenario(thread):
        gate = Gate()
        asked = await submitted(Lane(thread, gate.work), gate, [0, 1, 2])
        asked[1].cancel()
        gate.open.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert (answers[0], answers[2]) == (0, 4)

    run(scenario)


def test_work_that_breaks_leaves_nobody_waiting():
    async def scenario(thread):
        def broken(numbers):
            raise ArithmeticError(len(numbers))

        with pytest.raises(ArithmeticError):
            await Lane(thread, broken).submit(1)

    run(scenario)


def test_what_went_wrong_for_someone_who_is_gone_is_not_logged(caplog):
    async def scenario(thread):
        def refuse(numbers: Sequence[int]) -> Sequence[Exception]:
            return [NotFoundError("gone") for _ in numbers]

        lane: Lane[int, int] = Lane(thread, refuse)
        lane.submit(1)
        with pytest.raises(NotFoundError):
            await lane.submit(2)
        gc.collect()
        assert not caplog.records

    run(scenario)


def test_answers_are_told_of_in_the_context_of_who_asked_though_they_are_gone(caplog):
    caller: ContextVar[str] = ContextVar("caller")

    async def scenario(thread):
        gate, heard = Gate(), []

        def told(number, answer):
            heard.append((number, answer, caller.get()))
            if number == 1:
                raise ArithmeticError

        lane = Lane(thread, gate.work, told)
        caller.set("before")
        asked = await submitted(lane, gate, range(5))
        caller.set("after")
        asked.append(lane.submit(5))
        for one in asked[2:]:
            one.cancel()
        gate.open.set()
        await lane.settle()
        expected = [(0, 0), (1, 1), (2, 4), (4, 16), (5, 25)]
        assert heard == [(*one, "after" if one[0] == 5 else "before") for one in expected]
        assert [one.result() for one in asked[:2]] == [0, 1]
        assert [record.message for record in caplog.records] == ["an answer is not followed up"]
        await lane.settle()

    run(scenario)


def test_what_is_taken_back_is_not_begun_for_those_who_are_gone():
    async def scenario(thread):
        gate, taken_back = Gate(), []
        lane = Lane(thread, gate.work, take_back=lambda *answer: taken_back.append(answer))
        asked = await submitted(lane, gate, [5, 1, 2])
        for one in asked[:2]:
            one.cancel()
        gate.open.set()
        assert await asked[2] == 4
        assert gate.batches == [[5], [2]]
        assert taken_back == [(5, 25)]
        gate.began.clear()
        lane.submit(7).cancel()
        await lane.settle()
        assert not gate.began.is_set()

    run(scenario)


def test_a_defect_that_nobody_waits_for_is_logged(caplog):
    async def scenario(thread):
        def broken(numbers: Sequence[int]) -> Sequence[Exception]:
            raise ArithmeticError(len(numbers))

        lane: Lane[int, int] = Lane(thread, broken)
        lane.submit(1).cancel()
        await lane.settle()
        assert [record.message for record in caplog.records] == ["nobody waits for what failed"]

    run(scenario)


def test_a_lane_is_settled_once_nothing_waits_any_more():
    async def scenario(thread):
        gate = Gate()
        lane = Lane(thread, gate.work)
        asked = await submitted(lane, gate, [0, 1, 2])
        settled = asyncio.create_task(lane.settle())
        await asyncio.sleep(0)
        assert not settled.done()
        gate.open.set()
        await settled
        assert all(one.done() for one in asked)

    run(scenario)
