import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.jobs.batching import LARGEST_BATCH, Batcher


class Gate:
    """Work that records its batches and waits in the first one for a signal."""

    def __init__(self):
        self.batches = []
        self.began, self.open = threading.Event(), threading.Event()

    def work(self, numbers):
        self.batches.append(list(numbers))
        self.began.set()
        assert self.open.wait(30)
        return [NotFoundError(f"no {one}") if one % 10 == 3 else one * one for one in numbers]


@pytest.fixture
def thread():
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def submitted(batcher, gate, numbers):
    """Submit numbers while the first one is processed."""
    asked = [asyncio.create_task(batcher.submit(numbers[0]))]
    await asyncio.to_thread(gate.began.wait)
    asked += [asyncio.create_task(batcher.submit(number)) for number in numbers[1:]]
    await asyncio.sleep(0)
    return asked


async def test_concurrent_calls_share_a_batch_and_get_their_own_answers(thread):
    gate = Gate()
    asked = await submitted(Batcher(thread, gate.work), gate, range(20))
    gate.open.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert gate.batches == [[0], list(range(1, 20))]
    for number, answer in enumerate(answers):
        if number % 10 == 3:
            assert isinstance(answer, NotFoundError)
            assert answer.message == f"no {number}"
        else:
            assert answer == number * number


async def test_batches_are_bounded_and_complete(thread):
    gate = Gate()
    gate.open.set()
    batcher = Batcher(thread, gate.work)
    numbers = [10 * one for one in range(3 * LARGEST_BATCH)]
    squares = [one * one for one in numbers]
    assert await asyncio.gather(*map(batcher.submit, numbers)) == squares
    assert max(map(len, gate.batches)) == LARGEST_BATCH
    assert list(itertools.chain(*gate.batches)) == numbers
    assert await batcher.submit(5) == 25


async def test_a_cancelled_caller_leaves_its_batch_intact(thread):
    gate = Gate()
    asked = await submitted(Batcher(thread, gate.work), gate, [0, 1, 2])
    asked[1].cancel()
    gate.open.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[1], asyncio.CancelledError)
    assert (answers[0], answers[2]) == (0, 4)


async def test_an_error_of_the_work_reaches_every_caller(thread):
    def broken(numbers):
        raise ArithmeticError(len(numbers))

    with pytest.raises(ArithmeticError):
        await Batcher(thread, broken).submit(1)
