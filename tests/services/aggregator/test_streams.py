"""Calls of workers over streams: answered as by themselves, ended when the aggregator stops."""

import asyncio

import grpc
import pytest
from google.rpc import status_pb2
from prometheus_client import CollectorRegistry

from modnorm.errors import InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1 import experiment_pb2
from modnorm.wire.status import from_status
from services.aggregator.background import LeftWork
from services.aggregator.streams import WorkStreams
from services.common.metrics import CallMetrics
from verification.labs.waiting import HANG_SECONDS

SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING


class Stream:
    """A stream of one worker, call by call."""

    def __init__(self, jobs):
        self._stream = jobs.Work(timeout=HANG_SECONDS)

    async def call(self, **call):
        await self._stream.write(messages.WorkRequest(**call))
        return await self._stream.read()

    async def refused(self, **call):
        answer = await self.call(**call)
        assert answer.WhichOneof("answer") == "status"
        return from_status(status_pb2.Status.FromString(answer.status))

    async def end(self):
        await self._stream.done_writing()
        assert await self._stream.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # not in its stubs
        assert await self._stream.code() is grpc.StatusCode.OK

    async def ended(self):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self._stream.read()
        return raised.value.code(), raised.value.details()


def claim(job_id, worker="streaming"):
    return messages.ClaimJobRequest(job_id=job_id, worker=worker)


async def taken(lab, worker):
    """Take the next job id off the queue, once it is there.

    Labs of one process share the queue: ids that another one has left are dropped.
    """
    pending = await asyncio.to_thread(lab.aggregator._stores.jobs.pending)
    async with asyncio.timeout(HANG_SECONDS):
        while (job_id := await asyncio.to_thread(worker.take)) not in pending:
            pass
    return job_id


@pytest.fixture
def selecting(start_lab, spec):
    """Run a scenario with a lab, a worker and its stream, in the midst of a selection."""

    def run(scenario):
        async def whole():
            async with start_lab() as lab:
                created = await lab.create(spec())
                await lab.reach(created.id, SELECTING)
                await scenario(lab, lab.worker(), Stream(lab.jobs), created.id)

        asyncio.run(whole())

    return run


def test_calls_on_a_stream_lease_extend_report_and_fail(selecting):
    async def scenario(lab, worker, stream, experiment_id):
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

    selecting(scenario)


def test_a_refused_call_leaves_the_stream_and_all_else_as_it_is(selecting):
    async def scenario(lab, worker, stream, experiment_id):
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

    selecting(scenario)


def test_two_calls_in_a_message_are_answered_each_for_itself(selecting):
    async def scenario(lab, worker, stream, experiment_id):
        first, second = await taken(lab, worker), await taken(lab, worker)
        job = (await stream.call(claim=claim(first))).claim.job
        whole = messages.WholeReport(parts=await worker.parts(job))
        beyond = messages.WorkRequest(claim=claim(first))
        following = messages.WorkRequest(claim=claim(second), also=beyond)
        answer = await stream.call(report=whole, also=following)
        assert answer.HasField("report")
        assert answer.also.claim.job.lease.job_id == second
        assert not answer.also.HasField("also")
        again = await stream.call(claim=claim(second), also=messages.WorkRequest(report=whole))
        assert not again.claim.HasField("job")
        assert again.also.HasField("report")
        whole.parts[0].header.lease.token += 1
        answer = await stream.call(
            heartbeat=messages.HeartbeatRequest(lease=job.lease),
            also=messages.WorkRequest(report=whole),
        )
        for one in (answer, answer.also):
            status = status_pb2.Status.FromString(one.status)
            assert type(from_status(status)) is StaleLeaseError
        await stream.end()
        assert (await lab.get(experiment_id)).progress.jobs_done == 1

    selecting(scenario)


def test_streams_end_when_the_aggregator_stops(selecting):
    async def scenario(lab, worker, stream, _):
        await stream.call(claim=claim(await taken(lab, worker)))
        lab.aggregator._jobs.end_streams()
        late = Stream(lab.jobs)
        for one in (stream, late):
            code, details = await one.ended()
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "stopping" in details

    selecting(scenario)


class Answers:
    """Answers calls when it is told to."""

    def __init__(self):
        self.begun = asyncio.Event()
        self.ends = {}
        self.ended = []

    def answer(self, call, _response):
        kind = call.WhichOneof("call")
        self.ends[kind] = asyncio.get_running_loop().create_future()
        if len(self.ends) == 2:
            self.begun.set()
        return self.end(kind)

    async def end(self, kind):
        await self.ends[kind]
        self.ended.append(kind)


async def claim_and_report(streams):
    """Make a claim and a report one message, which is not answered."""

    async def calls():
        report = messages.WorkRequest(report=messages.WholeReport())
        yield messages.WorkRequest(claim=claim("job"), also=report)

    async for _ in streams.serve(calls()):
        raise AssertionError


@pytest.mark.parametrize("stored", ["before", "after"])
def test_a_call_beside_another_is_waited_for_and_counted_though_its_worker_is_gone(stored):
    async def scenario():
        answers, registry = Answers(), CollectorRegistry()
        left = LeftWork()
        streams = WorkStreams(answers.answer, CallMetrics(registry), left, never)
        stream = asyncio.create_task(claim_and_report(streams))
        await answers.begun.wait()
        if stored == "before":
            answers.ends["report"].set_result(None)
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
        if stored == "after":
            answers.ends["report"].set_result(None)
        await left.settle()
        assert answers.ended == ["report"]
        counted = {
            (sample.labels["method"], sample.labels["code"]): sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "modnorm_grpc_calls_total"
        }
        assert counted == {("ClaimJob", "CANCELLED"): 1.0, ("ReportJob", "OK"): 1.0}

    asyncio.run(scenario())


def test_an_answer_is_told_of_that_its_worker_cannot_have_as_the_call_beside_it_lasts():
    async def scenario():
        answers, lost = Answers(), asyncio.Queue[messages.WorkResponse]()
        measured = CallMetrics(CollectorRegistry())
        streams = WorkStreams(answers.answer, measured, LeftWork(), lost.put_nowait)
        stream = asyncio.create_task(claim_and_report(streams))
        await answers.begun.wait()
        answers.ends["claim"].set_result(None)
        await asyncio.sleep(0.05)
        assert answers.ended == ["claim"]
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
        assert lost.get_nowait() == messages.WorkResponse()

    asyncio.run(scenario())


def never(response):
    raise AssertionError(response)


class FollowedUp:
    """Notes which jobs were followed up."""

    def __init__(self, changes):
        self._follow_up, changes.follow_up = changes.follow_up, self.follow_up
        self.jobs = set()

    def follow_up(self, change):
        self._follow_up(change)
        if change.job is not None:
            self.jobs.add(change.job.id)


@pytest.mark.parametrize("way", ["stream", "call"])
def test_a_report_is_followed_up_though_its_worker_goes_before_it_is_stored(
    selecting, make_gone, way
):
    async def scenario(lab, worker, stream, experiment_id):
        job = (await stream.call(claim=claim(await taken(lab, worker)))).claim.job
        parts = await worker.parts(job)
        servicer, followed = lab.aggregator._jobs, FollowedUp(lab.aggregator._changes)
        reports = servicer._reports
        gone = make_gone((reports, "_work"), (reports, "submit"))
        if way == "stream":
            call = stream._stream
            await call.write(messages.WorkRequest(report=messages.WholeReport(parts=parts)))
        else:
            call = lab.jobs.ReportJob(iter(parts))
        await gone.goes(call, servicer.settle)
        assert followed.jobs == {job.lease.job_id}
        assert (await lab.get(experiment_id)).progress.jobs_done == 1

    selecting(scenario)


@pytest.mark.parametrize("way", ["stream", "call"])
def test_a_failure_is_followed_up_though_its_worker_goes_before_it_is_stored(
    selecting, make_gone, way
):
    async def scenario(lab, worker, stream, _):
        lease = (await stream.call(claim=claim(await taken(lab, worker)))).claim.job.lease
        servicer, followed = lab.aggregator._jobs, FollowedUp(lab.aggregator._changes)
        gone = make_gone((servicer._stores.jobs, "fail"), (servicer, "_fail"))
        request = messages.FailJobRequest(lease=lease, kind=messages.FAILURE_KIND_RELEASED)
        if way == "stream":
            call = stream._stream
            await call.write(messages.WorkRequest(fail=request))
        else:
            call = lab.jobs.FailJob(request)
        await gone.goes(call, servicer.settle)
        assert followed.jobs == {lease.job_id}
        assert (await worker.claim(lease.job_id)).lease.token > lease.token

    selecting(scenario)


def test_a_stop_stores_and_follows_up_the_reports_that_it_cuts_off(selecting, make_gone):
    async def scenario(lab, worker, stream, _):
        followed = FollowedUp(lab.aggregator._changes)
        reports = lab.aggregator._jobs._reports
        gone = make_gone((reports, "_work"), (reports, "submit"))
        jobs, calls = [], []
        for _ in range(2):
            jobs.append((await stream.call(claim=claim(await taken(lab, worker)))).claim.job)
            calls.append(lab.jobs.ReportJob(iter(await worker.parts(jobs[-1]))))
            await asyncio.wait_for(gone.calls.acquire(), HANG_SECONDS)
            await gone.begins()
        await gone.is_cut_off(lab.aggregator.stop())
        assert followed.jobs == {job.lease.job_id for job in jobs}
        assert not [call for call in calls if await call.code() is grpc.StatusCode.OK]

    selecting(scenario)


@pytest.mark.parametrize("way", ["stream", "call"])
def test_a_job_is_handed_back_whose_worker_goes_before_it_is_leased(selecting, make_gone, way):
    async def scenario(lab, worker, stream, experiment_id):
        servicer, followed = lab.aggregator._jobs, FollowedUp(lab.aggregator._changes)
        job_id, claims = await taken(lab, worker), servicer._claims
        gone = make_gone((claims, "_work"), (claims, "submit"))
        if way == "stream":
            call = stream._stream
            await call.write(messages.WorkRequest(claim=claim(job_id)))
        else:
            call = lab.jobs.ClaimJob(claim(job_id))
        await gone.goes(call, servicer.settle)
        assert followed.jobs == {job_id}
        await worker.report(await worker.claim(job_id))
        (base, *_) = await lab.candidates(experiment_id)
        assert base.attempts == 1

    selecting(scenario)


def test_a_claim_that_was_given_up_while_it_waited_does_not_take_its_job(selecting, make_gone):
    async def scenario(lab, worker, stream, _):
        first, second = await taken(lab, worker), await taken(lab, worker)
        claims = lab.aggregator._jobs._claims
        gone = make_gone((claims, "_work"), (claims, "submit"))
        earlier = asyncio.create_task(stream.call(claim=claim(first)))
        await gone.begins()
        call = lab.jobs.ClaimJob(claim(second))
        for _ in range(2):
            await gone.calls.acquire()
        call.cancel()
        async with asyncio.timeout(HANG_SECONDS):
            await gone._gone.wait()
        again = asyncio.create_task(worker.claim(second))
        await gone.calls.acquire()
        gone._go_on.set()
        assert (await earlier).claim.job.lease.job_id == first
        assert (await again).lease.token == 1

    selecting(scenario)


def test_a_job_is_handed_back_whose_worker_goes_while_its_report_is_stored(selecting, make_gone):
    async def scenario(lab, worker, stream, experiment_id):
        first, second = await taken(lab, worker), await taken(lab, worker)
        job = (await stream.call(claim=claim(first))).claim.job
        whole = messages.WholeReport(parts=await worker.parts(job))
        servicer, followed = lab.aggregator._jobs, FollowedUp(lab.aggregator._changes)
        gone = make_gone((servicer._reports, "_work"), (servicer._reports, "submit"))
        both = messages.WorkRequest(claim=claim(second), also=messages.WorkRequest(report=whole))
        await stream._stream.write(both)
        await gone.begins()
        await lab.aggregator._jobs._claims.settle()
        await gone.goes(stream._stream, servicer.settle)
        assert followed.jobs == {first, second}
        assert (await worker.claim(second)).lease.token == 2

    selecting(scenario)
