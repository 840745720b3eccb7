"""Calls of workers over streams: separate replies, and the end at a stop."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc import status_pb2
from prometheus_client import CollectorRegistry

from modnorm.errors import InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.services.aggregator.api.work_stream import MAX_CALLS, WorkStreams
from modnorm.services.common.metrics import CallMetrics
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.shielded_tasks import ShieldedTasks
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1 import experiment_pb2
from modnorm.wire.status import from_status
from verification.labs.waiting import HANG_SECONDS

SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING


class Stream:
    """A stream of one worker, call by call."""

    def __init__(self, jobs):
        self._stream = jobs.Work(timeout=HANG_SECONDS)

    async def write(self, *calls):
        await self._stream.write(messages.WorkRequest(calls=calls))

    async def send(self, *calls):
        await self.write(*calls)
        return (await self._stream.read()).replies

    async def call(self, **request):
        (reply,) = await self.send(messages.Call(**request))
        return reply

    async def refused(self, **request):
        return refusal(await self.call(**request))

    def cancel(self):
        return self._stream.cancel()

    async def end(self):
        await self._stream.done_writing()
        assert await self._stream.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # not in its stubs
        assert await self._stream.code() is grpc.StatusCode.OK

    async def ended(self):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self._stream.read()
        return raised.value.code(), raised.value.details()


def refusal(reply):
    assert reply.WhichOneof("response") == "status"
    return from_status(status_pb2.Status.FromString(reply.status))


def claim(job_id, worker="streaming"):
    return messages.ClaimJobRequest(job_id=job_id, worker=worker)


async def taken(lab, worker):
    """Wait for the next job id of the queue and take it.

    Labs of one process share the queue: ids that another one has left are dropped.
    """
    pending = await asyncio.to_thread(lab.aggregator._stores.jobs.pending)
    async with asyncio.timeout(HANG_SECONDS):
        while (job_id := await asyncio.to_thread(worker.take)) not in pending:
            pass
    return job_id


@pytest.fixture
def selecting(start_lab, spec):
    """Start a lab with a worker, its stream and an experiment during its selection."""

    @asynccontextmanager
    async def start():
        async with start_lab() as lab:
            created = await lab.create(spec())
            await lab.reach(created.id, SELECTING)
            yield lab, lab.worker(), Stream(lab.jobs), created.id

    return start


async def test_calls_on_a_stream_lease_extend_report_and_fail(selecting):
    async with selecting() as (lab, worker, stream, experiment_id):
        first, second = await taken(lab, worker), await taken(lab, worker)
        answer = await stream.call(claim=claim(first))
        lease = answer.claim.job.lease
        assert lease.job_id == first
        assert not (await stream.call(claim=claim(first))).claim.HasField("job")
        beat = await stream.call(heartbeat=messages.HeartbeatRequest(lease=lease, answers_done=1))
        assert beat.HasField("heartbeat")
        assert not beat.heartbeat.cancel
        whole = messages.WholeReport(parts=await worker.parts(answer.claim.job))
        for _ in range(2):
            assert (await stream.call(report=whole)).HasField("report")
        other = (await stream.call(claim=claim(second))).claim.job.lease
        kind = messages.FAILURE_KIND_INFRASTRUCTURE
        failure = messages.FailJobRequest(lease=other, kind=kind, reason="no power")
        assert (await stream.call(fail=failure)).HasField("fail")
        await stream.end()
        assert (await lab.get(experiment_id)).progress.jobs_done == 1
        again = (await worker.claim(second)).lease
        assert again.token > other.token


async def test_a_refused_call_changes_nothing_and_keeps_the_stream(selecting):
    async with selecting() as (lab, worker, stream, experiment_id):
        job = (await stream.call(claim=claim(await taken(lab, worker)))).claim.job
        parts = await worker.parts(job)
        parts[0].header.lease.token += 1
        whole, cut = messages.WholeReport(parts=parts), messages.WholeReport(parts=parts[1:])
        assert type(await stream.refused(report=whole)) is StaleLeaseError
        unknown = messages.HeartbeatRequest()
        assert type(await stream.refused(heartbeat=unknown)) is NotFoundError
        for done in (-1, 2**31 - 1):
            beat = messages.HeartbeatRequest(lease=job.lease, answers_done=done)
            assert type(await stream.refused(heartbeat=beat)) is InvalidInputError
        nameless = messages.ClaimJobRequest(job_id=job.lease.job_id)
        for malformed in (stream.refused(), stream.refused(report=cut)):
            assert type(await malformed) is InvalidInputError
        assert type(await stream.refused(claim=nameless)) is InvalidInputError
        assert (await lab.get(experiment_id)).progress.jobs_done == 0
        parts[0].header.lease.token -= 1
        assert (await stream.call(report=messages.WholeReport(parts=parts))).HasField("report")
        await stream.end()


async def test_the_calls_of_a_message_are_answered_separately(selecting):
    async with selecting() as (lab, worker, stream, experiment_id):
        first, second = await taken(lab, worker), await taken(lab, worker)
        job = (await stream.call(claim=claim(first))).claim.job
        whole = messages.WholeReport(parts=await worker.parts(job))
        report, following = messages.Call(report=whole), messages.Call(claim=claim(second))
        stored, leased = await stream.send(report, following)
        assert stored.HasField("report")
        assert leased.claim.job.lease.job_id == second
        none, again = await stream.send(following, report)
        assert not none.claim.HasField("job")
        assert again.HasField("report")
        report.report.parts[0].header.lease.token += 1
        leases = (job.lease, leased.claim.job.lease)
        beats = [messages.HeartbeatRequest(lease=lease) for lease in leases]
        calls = [report, *(messages.Call(heartbeat=beat) for beat in beats), messages.Call()]
        stale, done, alive, empty = await stream.send(*calls)
        assert type(refusal(stale)) is type(refusal(done)) is StaleLeaseError
        assert alive.HasField("heartbeat")
        assert type(refusal(empty)) is InvalidInputError
        await stream.end()
        assert (await lab.get(experiment_id)).progress.jobs_done == 1


@pytest.mark.parametrize("number", [0, MAX_CALLS + 1])
async def test_the_number_of_calls_in_a_message_is_bounded(selecting, number):
    async with selecting() as (lab, worker, stream, _):
        job_id = await taken(lab, worker)
        await stream.write(*[messages.Call(claim=claim(job_id))] * number)
        code, details = await stream.ended()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert str(number) in details
        beat = messages.Call(heartbeat=messages.HeartbeatRequest())
        assert len(await Stream(lab.jobs).send(*[beat] * MAX_CALLS)) == MAX_CALLS
        assert (await worker.claim(job_id)).lease.token == 1


def test_all_leases_that_a_worker_can_hold_fit_one_message():
    """One job at the engine, one in the background, and the parked ones."""
    (bound,) = (
        rule.le
        for rule in EvaluatorSettings.model_fields["parked_candidates"].metadata
        if hasattr(rule, "le")
    )
    assert bound + 2 <= MAX_CALLS


async def test_streams_end_when_the_aggregator_stops(selecting):
    async with selecting() as (lab, worker, stream, _):
        await stream.call(claim=claim(await taken(lab, worker)))
        lab.aggregator._jobs.end_streams()
        late = Stream(lab.jobs)
        for one in (stream, late):
            code, details = await one.ended()
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "stopping" in details


class Answers:
    """Answers each call on request."""

    def __init__(self):
        self.begun = asyncio.Event()
        self.ends = {}
        self.ended = []

    async def answer(self, call, reply, _caller):
        kind = call.WhichOneof("request")
        end = self.ends[kind] = asyncio.get_running_loop().create_future()
        if len(self.ends) == 2:
            self.begun.set()
        await end
        self.ended.append(kind)
        reply.claim.job.lease.job_id = kind


async def claim_and_report(streams):
    """Send a claim and a report in one message without a response."""

    async def requests():
        report = messages.Call(report=messages.WholeReport())
        yield messages.WorkRequest(calls=[messages.Call(claim=claim("job")), report])

    async for _ in streams.serve(requests()):
        raise AssertionError


@pytest.mark.parametrize("answered", ["before", "after"])
async def test_calls_of_a_disconnected_worker_finish_and_are_counted(answered):
    answers, registry, lost = Answers(), CollectorRegistry(), list[messages.Reply]()
    tasks = ShieldedTasks()
    streams = WorkStreams(answers.answer, lost.append, CallMetrics(registry), tasks)
    stream = asyncio.create_task(claim_and_report(streams))
    await answers.begun.wait()
    if answered == "before":
        answers.ends["claim"].set_result(None)
        await asyncio.sleep(0)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    for end in answers.ends.values():
        if not end.done():
            end.set_result(None)
    await tasks.settle()
    assert set(answers.ended) == {"claim", "report"}
    assert [reply.claim.job.lease.job_id for reply in lost] == ["claim", "report"]
    counted = {
        (sample.labels["method"], sample.labels["code"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "modnorm_grpc_calls_total"
    }
    assert counted == {("ClaimJob", "OK"): 1.0, ("ReportJob", "OK"): 1.0}


class FollowedUp:
    """Records the jobs that were followed up."""

    def __init__(self, servicer):
        self._follow_up, servicer._changed = servicer._changed, self.follow_up
        self.jobs = set()

    def follow_up(self, change):
        self._follow_up(change)
        if change.job is not None:
            self.jobs.add(change.job.id)


@pytest.mark.parametrize("way", ["stream", "call"])
async def test_a_report_of_a_disconnected_worker_is_followed_up(selecting, make_gone, way):
    async with selecting() as (lab, worker, stream, experiment_id):
        job = (await stream.call(claim=claim(await taken(lab, worker)))).claim.job
        parts = await worker.parts(job)
        tasks, followed = lab.aggregator._tasks, FollowedUp(lab.aggregator._jobs)
        gone = make_gone(tasks, (lab.aggregator._jobs._reports, "_work"))
        call = stream
        if way == "stream":
            await stream.write(messages.Call(report=messages.WholeReport(parts=parts)))
        else:
            call = lab.jobs.ReportJob(iter(parts))
        await gone.goes(call, tasks.settle)
        assert followed.jobs == {job.lease.job_id}
        assert (await lab.get(experiment_id)).progress.jobs_done == 1


async def test_a_failure_of_a_disconnected_worker_is_followed_up(selecting, make_gone):
    async with selecting() as (lab, worker, stream, _):
        lease = (await stream.call(claim=claim(await taken(lab, worker)))).claim.job.lease
        tasks, followed = lab.aggregator._tasks, FollowedUp(lab.aggregator._jobs)
        gone = make_gone(tasks, (lab.aggregator._stores.jobs, "fail"))
        request = messages.FailJobRequest(lease=lease, kind=messages.FAILURE_KIND_RELEASED)
        await stream.write(messages.Call(fail=request))
        await gone.goes(stream, tasks.settle)
        assert followed.jobs == {lease.job_id}
        assert (await worker.claim(lease.job_id)).lease.token > lease.token


async def test_a_stop_stores_and_follows_up_interrupted_reports(selecting, make_gone):
    async with selecting() as (lab, worker, stream, _):
        followed = FollowedUp(lab.aggregator._jobs)
        tasks = lab.aggregator._tasks
        jobs = [(await stream.call(claim=claim(await taken(lab, worker)))).claim.job]
        jobs.append((await stream.call(claim=claim(await taken(lab, worker)))).claim.job)
        gone = make_gone(tasks, (lab.aggregator._jobs._reports, "_work"))
        calls = []
        for job in jobs:
            calls.append(lab.jobs.ReportJob(iter(await worker.parts(job))))
            await asyncio.wait_for(gone.calls.acquire(), HANG_SECONDS)
            await gone.begins()
        await gone.is_cut_off(lab.aggregator.stop())
        assert followed.jobs == {job.lease.job_id for job in jobs}
        assert not [call for call in calls if await call.code() is grpc.StatusCode.OK]


async def test_a_job_is_released_if_its_worker_disconnects_before_the_lease(selecting, make_gone):
    async with selecting() as (lab, worker, stream, experiment_id):
        job_id, tasks = await taken(lab, worker), lab.aggregator._tasks
        followed = FollowedUp(lab.aggregator._jobs)
        gone = make_gone(tasks, (lab.aggregator._stores.jobs, "claim_all"))
        await stream.write(messages.Call(claim=claim(job_id)))
        await gone.goes(stream, tasks.settle)
        assert followed.jobs == {job_id}
        await worker.report(await worker.claim(job_id))
        (base, *_) = await lab.candidates(experiment_id)
        assert base.attempts == 1


async def test_a_queued_claim_of_a_disconnected_worker_leases_no_job(selecting, make_gone):
    async with selecting() as (lab, worker, stream, _):
        first, second = await taken(lab, worker), await taken(lab, worker)
        gone = make_gone(lab.aggregator._tasks, (lab.aggregator._stores.jobs, "claim_all"))
        earlier = asyncio.create_task(stream.call(claim=claim(first)))
        await gone.begins()
        given_up = Stream(lab.jobs)
        await given_up.write(messages.Call(claim=claim(second)))
        for _ in range(2):
            await gone.calls.acquire()
        given_up.cancel()
        async with asyncio.timeout(HANG_SECONDS):
            await gone._gone.wait()
        again = asyncio.create_task(worker.claim(second))
        await gone.calls.acquire()
        gone._go_on.set()
        assert (await earlier).claim.job.lease.job_id == first
        assert (await again).lease.token == 1


async def test_a_claimed_job_is_released_if_its_worker_disconnects_during_a_report(
    selecting, make_gone
):
    async with selecting() as (lab, worker, stream, _):
        first, second = await taken(lab, worker), await taken(lab, worker)
        job = (await stream.call(claim=claim(first))).claim.job
        whole = messages.WholeReport(parts=await worker.parts(job))
        tasks, followed = lab.aggregator._tasks, FollowedUp(lab.aggregator._jobs)
        gone = make_gone(tasks, (lab.aggregator._jobs._reports, "_work"))
        await stream.write(messages.Call(claim=claim(second)), messages.Call(report=whole))
        await gone.begins()
        async with asyncio.timeout(HANG_SECONDS):
            while second in await asyncio.to_thread(lab.aggregator._stores.jobs.pending):
                pass
        await gone.goes(stream, tasks.settle)
        assert followed.jobs == {first, second}
        assert (await worker.claim(second)).lease.token == 2
