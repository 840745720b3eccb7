"""A worker's calls over one stream."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from modnorm.errors import StaleLeaseError, UnavailableError
from modnorm.services.common.worker.work_stream_client import WorkStream
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub


def lease(job_id: str = "a") -> messages.Lease:
    return messages.Lease(job_id=job_id, token=1, seconds=60.0)


def beat(job_id: str = "a") -> messages.Call:
    request = messages.HeartbeatRequest(lease=lease(job_id), answers_done=1, answers_total=2)
    return messages.Call(heartbeat=request)


def parts(batches: int):
    """Yield a report with some batches of one answer each."""
    yield messages.ReportJobRequest(header=messages.ReportHeader(lease=lease()))
    for row in range(batches):
        answer = messages.Answer(row=row, completion="x")
        yield messages.ReportJobRequest(answers=messages.AnswerBatch(answers=[answer]))


def offer(aggregator, *job_ids: str) -> None:
    aggregator.jobs.update({one: messages.Job(lease=lease(one)) for one in job_ids})


@pytest.fixture
def stream(target) -> Iterator[WorkStream]:
    with grpc.insecure_channel(target) as channel:
        yield WorkStream(JobServiceStub(channel))


def test_calls_share_a_stream(client: AggregatorClient, aggregator) -> None:
    offer(aggregator, "a")
    job = client.claim("a")
    assert job is not None
    assert job.lease == lease()
    assert client.claim("a") is None
    assert list(client.heartbeats([beat()])) == [messages.HeartbeatResponse()]
    client.report(lambda: parts(1))
    client.fail(lease("b"), messages.FAILURE_KIND_CANDIDATE, "reason")
    assert aggregator.opened == 1
    assert aggregator.calls == {"ClaimJob": 2, "Heartbeat": 1, "ReportJob": 1, "FailJob": 1}
    assert aggregator.failures["b"].reason == "reason"
    assert aggregator.reports["a"].parts == 2


@pytest.mark.parametrize("batches", [0, 1, 2, 5])
def test_only_reports_of_one_batch_share_it(client, aggregator, batches) -> None:
    client.report(lambda: parts(batches))
    assert aggregator.opened == int(batches < 2)
    assert [one.row for one in aggregator.reports["a"].answers] == list(range(batches))


def test_a_failed_call_raises_the_aggregators_error(client, aggregator) -> None:
    lost = StaleLeaseError("lost", field="lease.token", remedy="stop")
    aggregator.errors = {"Heartbeat": [lost], "ReportJob": [lost]}
    (refused,) = client.heartbeats([beat()])
    assert type(refused) is StaleLeaseError
    assert (refused.message, refused.field, refused.remedy) == ("lost", "lease.token", "stop")
    with pytest.raises(StaleLeaseError, match="lost"):
        client.report(lambda: parts(1))
    assert client.heartbeats([beat()]) == [messages.HeartbeatResponse()]
    assert aggregator.opened == 1


@pytest.mark.parametrize("place", [0, 1])
def test_leases_of_one_message_are_refused_separately(client, aggregator, place) -> None:
    aggregator.threshold = messages.Threshold(reward=0.5, index=2)
    one = messages.HeartbeatResponse(threshold=aggregator.threshold)
    assert client.heartbeats([beat(job_id) for job_id in "abc"]) == [one] * 3
    assert aggregator.said == [["a", "b", "c"]]
    lost = StaleLeaseError("lost", field="lease.token", remedy="stop")
    aggregator.errors["Heartbeat"] = [None] * place + [lost]
    aggregator.heartbeats.clear()
    answers = list(client.heartbeats([beat(job_id) for job_id in "abc"]))
    assert type(answers.pop(place)) is StaleLeaseError
    assert answers == [one] * 2
    heard = {heartbeat.lease.job_id for heartbeat in aggregator.heartbeats}
    assert heard == set("abc") - {"abc"[place]}


def test_an_unavailable_aggregator_fails_the_heartbeats_of_all_leases(client, aggregator) -> None:
    aggregator.endurance = 0
    answers = client.heartbeats([beat(job_id) for job_id in "abc"])
    assert [type(answer) for answer in answers] == [UnavailableError] * 3
    assert not aggregator.heartbeats


def test_a_broken_stream_is_reopened(client, aggregator) -> None:
    aggregator.endurance = 2
    offer(aggregator, *"abcdef")
    for job_id in "abcdef":
        assert client.claim(job_id) == messages.Job(lease=lease(job_id))
    assert aggregator.opened == 3


def test_a_late_response_is_not_used_for_the_next_call(stream, aggregator) -> None:
    offer(aggregator, "late", "next")
    aggregator.answering.clear()
    late, following = (
        messages.Call(claim=messages.ClaimJobRequest(job_id=job_id)) for job_id in ("late", "next")
    )
    with pytest.raises(UnavailableError, match="no answer"):
        stream.call([late], 0.05)
    aggregator.answering.set()
    (reply,) = stream.call([following], 30.0)
    assert reply.claim.job.lease.job_id == "next"


def test_a_calls_deadline_includes_the_wait_for_earlier_calls(stream, aggregator) -> None:
    with ThreadPoolExecutor(1) as beside:
        aggregator.answering.clear()
        slow = beside.submit(stream.call, [beat("a")], 30.0)
        while not stream._lock.locked():
            threading.Event().wait(0.01)
        with pytest.raises(UnavailableError, match="no answer"):
            stream.call([beat("b")], 0.05)
        aggregator.answering.set()
        (reply,) = slow.result()
        assert reply.HasField("heartbeat")
    assert aggregator.said == [["a"]]


def test_calls_of_many_threads_have_their_own_replies(stream, aggregator) -> None:
    job_ids = [f"job {number}" for number in range(40)]
    offer(aggregator, *job_ids)

    def claimed(job_id: str) -> str:
        call = messages.Call(claim=messages.ClaimJobRequest(job_id=job_id))
        (reply,) = stream.call([call], 30.0)
        return str(reply.claim.job.lease.job_id)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(claimed, job_ids)) == job_ids
    assert aggregator.opened == 1
