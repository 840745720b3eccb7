"""Heartbeats of many leases in a message: each is extended, refused and told of for itself."""

import asyncio

import pytest
from google.rpc import status_pb2

from modnorm.errors import InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.status import from_status
from services.aggregator.heartbeats import MAX_LEASES
from services.aggregator.states import JobState
from services.aggregator.tables import Job
from services.common.settings import EvaluatorSettings
from verification.labs.waiting import HANG_SECONDS

BAR = messages.Bar(reward=1.0, index=0)


def beat(job, **named):
    return messages.HeartbeatRequest(lease=job.lease, **named)


def refusal(answer):
    return type(from_status(status_pb2.Status.FromString(answer.status)))


async def by_itself(lab, request):
    return await lab.jobs.Heartbeat(request, timeout=HANG_SECONDS)


async def on_a_stream(lab, request):
    stream = lab.jobs.Work(timeout=HANG_SECONDS)
    await stream.write(messages.WorkRequest(heartbeat=request))
    answer = await stream.read()
    assert answer.HasField("heartbeat")
    return answer.heartbeat


def stored(lab, job):
    with lab.aggregator._stores.jobs._database.read() as session:
        return session.get(Job, job.lease.job_id)


def running(start_lab, spec, scenario):
    """Run a scenario with a worker that has reported the best candidate, and four leases."""

    async def whole():
        async with start_lab() as lab:
            await lab.create(spec(population__ensemble_sizes=[1]))
            worker = lab.worker()
            for _ in range(2):  # the base and the first candidate
                header, batch = await worker.parts(await worker.claim_next())
                for answer in batch.answers.answers:
                    answer.reward = 1.0
                await worker.jobs.ReportJob(iter([header, batch]), timeout=HANG_SECONDS)
            await scenario(lab, [await worker.claim_next() for _ in range(4)])

    asyncio.run(whole())


@pytest.mark.parametrize("send", [by_itself, on_a_stream])
def test_leases_of_one_message_are_extended_and_refused_each_for_itself(start_lab, spec, send):
    async def scenario(lab, jobs):
        first, second, third, lost = jobs
        lost.lease.token += 1
        before = stored(lab, first).lease_deadline
        about = {"experiment_id": second.experiment_id, "candidate": second.candidate}
        request = beat(lost)
        request.also.extend(
            [
                beat(first, answers_done=2, resting=True),
                beat(second, **about),
                beat(third, answers_done=-1),
                messages.HeartbeatRequest(),
                beat(first, answers_done=3),
            ]
        )
        answer = await send(lab, request)
        assert refusal(answer) is StaleLeaseError
        one, two, three, unknown, again = answer.also
        assert (one, two, again) == (
            messages.HeartbeatResponse(),
            messages.HeartbeatResponse(bar=BAR),
            messages.HeartbeatResponse(),
        )
        assert (refusal(three), refusal(unknown)) == (InvalidInputError, NotFoundError)
        job = stored(lab, first)
        assert job.lease_deadline > before
        assert (job.answers_done, job.resting) == (3, False)
        await lab.cancel(first.experiment_id)
        lost.lease.token -= 1
        every = beat(lost)
        every.also.extend(beat(job) for job in (first, second))
        told = await send(lab, every)
        assert [one.cancel for one in (told, *told.also)] == [True] * 3
        assert stored(lab, first).state is JobState.CANCELLED

    running(start_lab, spec, scenario)


def test_a_message_is_of_so_many_leases_and_looks_no_deeper(start_lab, spec):
    async def scenario(lab, jobs):
        first, second, *_ = jobs
        before = stored(lab, first).lease_deadline
        many = beat(first)
        many.also.extend([beat(first)] * MAX_LEASES)
        async with lab.raises(InvalidInputError, "also"):
            await by_itself(lab, many)
        assert stored(lab, first).lease_deadline == before
        del many.also[1:]
        many.also[0].CopyFrom(beat(second, also=[beat(first, answers_done=4)]))
        answer = await by_itself(lab, many)
        assert len(answer.also) == 1
        assert not answer.also[0].also
        assert stored(lab, first).answers_done == 0
        del many.also[:]
        many.also.extend([beat(first)] * (MAX_LEASES - 1))
        assert len((await by_itself(lab, many)).also) == MAX_LEASES - 1

    running(start_lab, spec, scenario)


def test_all_that_a_worker_can_hold_fit_one_message():
    """One at the engine and one behind it, beside those that rest."""
    (bound,) = (
        rule.le
        for rule in EvaluatorSettings.model_fields["resting_candidates"].metadata
        if hasattr(rule, "le")
    )
    assert bound + 2 <= MAX_LEASES
