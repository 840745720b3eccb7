"""Calls whose worker disconnects while they are stored."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from modnorm.services.aggregator.api.job_servicer import CallBatcher
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import HANG_SECONDS

if TYPE_CHECKING:
    from google.protobuf.message import Message


class FollowedUp:
    """Records the jobs that were followed up."""

    def __init__(self, servicer):
        self._follow_up, servicer._publish = servicer._publish, self.follow_up
        self.jobs = set()

    def follow_up(self, change):
        self._follow_up(change)
        if change.job is not None:
            self.jobs.add(change.job.id)


@pytest.mark.parametrize("method", ["ReportJob", "FailJob", "ClaimJob"])
async def test_what_a_disconnected_worker_stored_is_followed_up(
    start_lab, spec, make_gone, method
):
    """A claim is released, so that another worker gets the job at once."""
    async with start_lab() as lab:
        created = await lab.select(spec())
        worker, jobs = lab.worker(), lab.aggregator._job_store
        tasks, followed = lab.aggregator._tasks, FollowedUp(lab.aggregator._jobs)
        request: Message
        if method == "ClaimJob":
            store = (lab.aggregator._jobs._claims, "_answer")
            request = messages.ClaimJobRequest(worker="gone")
        else:
            job = await worker.claim()
            store = (jobs, "fail")
            request = messages.FailJobRequest(lease=job.lease, kind=messages.FAILURE_KIND_RELEASED)
            if method == "ReportJob":
                store = (lab.aggregator._jobs._reports, "_answer")
                request = await worker.report_of(job)
        gone = make_gone(tasks, store)
        await gone.goes(getattr(lab.jobs, method)(request), tasks.settle)
        assert len(followed.jobs) == 1
        done = (await lab.get(created.id)).progress.jobs_done
        assert done == (method == "ReportJob")
        assert done or (await worker.claim()).lease.token == 2


async def test_a_stop_stores_and_follows_up_interrupted_reports(start_lab, spec, make_gone):
    async with start_lab() as lab:
        await lab.create(spec())
        worker = lab.worker()
        jobs = [await worker.claim_next() for _ in range(2)]
        tasks, followed = lab.aggregator._tasks, FollowedUp(lab.aggregator._jobs)
        gone = make_gone(tasks, (lab.aggregator._jobs._reports, "_answer"))
        calls = []
        for job in jobs:
            calls.append(lab.jobs.ReportJob(await worker.report_of(job)))
            await asyncio.wait_for(gone.calls.acquire(), HANG_SECONDS)
            await gone.begins()
        await gone.is_cut_off(lab.aggregator.stop())
        assert followed.jobs == {job.lease.job_id for job in jobs}


async def test_a_call_that_is_given_up_does_not_stop_others():
    entered, proceed = threading.Event(), threading.Event()

    def answer(batch):
        entered.set()
        proceed.wait(HANG_SECONDS)
        return batch

    batches = CallBatcher(answer)
    given_up = asyncio.create_task(batches.submit(1))
    await asyncio.to_thread(entered.wait, HANG_SECONDS)
    given_up.cancel()
    other = asyncio.create_task(batches.submit(2))
    await asyncio.sleep(0)
    proceed.set()
    assert await other == 2
    assert await batches.submit(3) == 3


async def test_long_batches_take_no_thread_from_other_calls():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    begun, proceed = asyncio.Event(), threading.Event()

    def answer(batch):
        loop.call_soon_threadsafe(begun.set)
        assert proceed.wait(60)
        return batch

    batches = CallBatcher(answer)
    waiting = [asyncio.create_task(batches.submit(group, group)) for group in ("a", "b")]
    await begun.wait()
    await asyncio.to_thread(proceed.set)
    assert await asyncio.gather(*waiting) == ["a", "b"]
