"""Heartbeats of many leases in one message are answered separately."""

from google.rpc import status_pb2

from modnorm.errors import InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.services.aggregator.storage.states import JobState
from modnorm.services.aggregator.storage.tables import Job
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.status import from_status

SECONDS = 60
THRESHOLD = messages.Threshold(reward=1.0, index=0)


def beat(job, **named):
    return messages.HeartbeatRequest(lease=job.lease, **named)


def refusal(answer):
    return type(from_status(status_pb2.Status.FromString(answer.status)))


async def send(lab, *beats):
    """Send heartbeats in one message; return the replies."""
    stream = lab.jobs.Work(timeout=SECONDS)
    calls = [messages.Call(heartbeat=one) for one in beats]
    await stream.write(messages.WorkRequest(calls=calls))
    return (await stream.read()).replies


def stored(lab, job):
    with lab.aggregator._stores.jobs._database.read() as session:
        return session.get(Job, job.lease.job_id)


async def test_leases_of_one_message_are_extended_and_refused_separately(start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec(population__ensemble_sizes=[1]))
        worker = lab.worker()
        for _ in range(2):  # the base and the first candidate, which is the best
            header, batch = await worker.parts(await worker.claim_next())
            for answer in batch.answers.answers:
                answer.reward = 1.0
            await worker.jobs.ReportJob(iter([header, batch]), timeout=SECONDS)
        first, second, third, lost = [await worker.claim_next() for _ in range(4)]
        lost.lease.token += 1
        before = stored(lab, first).lease_deadline
        about = {"experiment_id": second.experiment_id, "candidate": second.candidate}
        stale, one, two, three, unknown = await send(
            lab,
            beat(lost),
            beat(first, answers_done=2, parked=True),
            beat(second, **about),
            beat(third, answers_done=-1),
            messages.HeartbeatRequest(),
        )
        assert refusal(stale) is StaleLeaseError
        assert (one.heartbeat, two.heartbeat) == (
            messages.HeartbeatResponse(),
            messages.HeartbeatResponse(threshold=THRESHOLD),
        )
        assert (refusal(three), refusal(unknown)) == (InvalidInputError, NotFoundError)
        job = stored(lab, first)
        assert job.lease_deadline > before
        assert (job.answers_done, job.parked) == (2, True)
        await send(lab, beat(first, answers_done=2, parked=True), beat(first, answers_done=3))
        job = stored(lab, first)
        assert (job.answers_done, job.parked) == (3, False)
        await lab.cancel(first.experiment_id)
        lost.lease.token -= 1
        told = await send(lab, beat(lost), beat(first), beat(second))
        assert [reply.heartbeat.cancel for reply in told] == [True] * 3
        assert stored(lab, first).state is JobState.CANCELLED
