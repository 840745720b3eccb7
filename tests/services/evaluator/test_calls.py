"""A worker's calls over one stream, and what becomes of them when there is none."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from modnorm.errors import StaleLeaseError, UnavailableError
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from services.evaluator import calls
from services.evaluator.gateway import JobGateway
from services.evaluator.line import Line
from verification.labs.waiting import HANG_SECONDS


def lease(job_id: str = "a") -> messages.Lease:
    return messages.Lease(job_id=job_id, token=1, seconds=60.0)


def beat(job_id: str = "a") -> messages.HeartbeatRequest:
    return messages.HeartbeatRequest(lease=lease(job_id), answers_done=1, answers_total=2)


def parts(batches: int):
    """Yield a report with some batches of one answer each."""
    yield messages.ReportJobRequest(header=messages.ReportHeader(lease=lease()))
    for row in range(batches):
        answer = messages.Answer(row=row, completion="x")
        yield messages.ReportJobRequest(answers=messages.AnswerBatch(answers=[answer]))


def offer(aggregator, *job_ids: str) -> None:
    aggregator.jobs.update({one: messages.Job(lease=lease(one)) for one in job_ids})


def work(gateway: JobGateway) -> None:
    """Make every call once."""
    job = gateway.claim("a")
    assert job is not None
    assert job.lease == lease()
    assert gateway.claim("a") is None
    assert list(gateway.heartbeats([beat()])) == [messages.HeartbeatResponse()]
    gateway.report(lambda: parts(1))
    gateway.fail(lease("b"), messages.FAILURE_KIND_CANDIDATE, "reason")


@pytest.mark.parametrize("streams", [True, False])
def test_calls_share_a_stream_where_there_is_that_rpc(gateway, aggregator, streams) -> None:
    offer(aggregator, "a")
    aggregator.streams = streams
    work(gateway)
    assert aggregator.opened == int(streams)
    assert aggregator.calls == {"ClaimJob": 2, "Heartbeat": 1, "ReportJob": 1, "FailJob": 1}
    assert aggregator.failures["b"].reason == "reason"
    assert aggregator.reports["a"].parts == 2


@pytest.mark.parametrize("batches", [0, 1, 2, 5])
def test_only_reports_of_one_batch_share_it(gateway, aggregator, batches) -> None:
    gateway.report(lambda: parts(batches))
    assert aggregator.opened == int(batches < 2)
    assert [one.row for one in aggregator.reports["a"].answers] == list(range(batches))


@pytest.mark.parametrize("streams", [True, False])
def test_a_refusal_is_the_error_that_the_aggregator_met(gateway, aggregator, streams) -> None:
    aggregator.streams = streams
    aggregator.errors["Heartbeat"] = [StaleLeaseError("lost", field="lease.token", remedy="stop")]
    (refused,) = gateway.heartbeats([beat()])
    assert type(refused) is StaleLeaseError
    assert (refused.message, refused.field, refused.remedy) == ("lost", "lease.token", "stop")
    assert gateway.heartbeats([beat()]) == [messages.HeartbeatResponse()]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("place", [0, 1])
def test_leases_of_one_message_are_refused_each_for_itself(
    gateway, aggregator, streams, together, place
) -> None:
    aggregator.streams, aggregator.together = streams, together
    aggregator.bar = messages.Bar(reward=0.5, index=2)
    one = messages.HeartbeatResponse(bar=aggregator.bar)
    assert gateway.heartbeats([beat(job_id) for job_id in "abc"]) == [one] * 3
    assert aggregator.calls["Heartbeat"] == (1 if together else 3)
    lost = StaleLeaseError("lost", field="lease.token", remedy="stop")
    aggregator.errors["Heartbeat"] = [None] * place + [lost]
    aggregator.heartbeats.clear()
    answers = list(gateway.heartbeats([beat(job_id) for job_id in "abc"]))
    assert type(answers.pop(place)) is StaleLeaseError
    assert answers == [one] * 2
    heard = {heartbeat.lease.job_id for heartbeat in aggregator.heartbeats}
    assert heard == set("abc") - {"abc"[place]}


def test_an_aggregator_that_is_away_is_away_for_all_leases(gateway, aggregator) -> None:
    aggregator.together = False
    aggregator.errors["Heartbeat"] = [UnavailableError("down")]
    answers = gateway.heartbeats([beat(job_id) for job_id in "abc"])
    assert [type(answer) for answer in answers] == [UnavailableError] * 3
    assert aggregator.calls["Heartbeat"] == 1


def test_a_stream_that_broke_is_opened_again(gateway, aggregator) -> None:
    aggregator.endurance = 2
    offer(aggregator, *"abcdef")
    for job_id in "abcdef":
        assert gateway.claim(job_id) == messages.Job(lease=lease(job_id))
    assert aggregator.opened == 3


def test_a_late_answer_is_not_that_of_the_next_call(target, aggregator) -> None:
    offer(aggregator, "late", "next")
    with grpc.insecure_channel(target) as channel:
        line = Line(JobServiceStub(channel))
        aggregator.answering.clear()
        late, following = (
            messages.WorkRequest(claim=messages.ClaimJobRequest(job_id=job_id))
            for job_id in ("late", "next")
        )
        with pytest.raises(UnavailableError, match="no answer"):
            line.call(late, 0.05)
        aggregator.answering.set()
        assert line.call(following, 30.0).claim.job.lease.job_id == "next"


def test_a_call_waits_for_those_before_it_no_longer_than_for_its_own_answer(
    target, aggregator
) -> None:
    with grpc.insecure_channel(target) as channel, ThreadPoolExecutor(1) as beside:
        line = Line(JobServiceStub(channel))
        aggregator.answering.clear()
        first, second = (messages.WorkRequest(heartbeat=beat(job_id)) for job_id in "ab")
        slow = beside.submit(line.call, first, 30.0)
        while not line._lock.locked():
            threading.Event().wait(0.01)
        with pytest.raises(UnavailableError, match="no answer"):
            line.call(second, 0.05)
        aggregator.answering.set()
        assert slow.result().HasField("heartbeat")
    assert aggregator.said == [["a"]]


def report_beside_claims(gateway: JobGateway) -> None:
    """Report the job that was claimed last, and ask for others until that has been answered."""
    with ThreadPoolExecutor(1) as behind:
        reported = behind.submit(gateway.report, lambda: parts(1))
        while not reported.done():
            assert gateway.claim("none") is None
        reported.result()


@pytest.mark.parametrize("carries", [True, False])
def test_a_report_goes_with_the_next_claim(gateway, aggregator, monkeypatch, carries) -> None:
    monkeypatch.setattr(calls, "TOGETHER_SECONDS", 60.0)
    aggregator.carries = carries
    offer(aggregator, "a")
    for _ in range(2):
        aggregator.jobs["a"] = messages.Job(lease=lease())
        assert gateway.claim("a") is not None
        report_beside_claims(gateway)
    assert aggregator.calls["ReportJob"] == 2
    assert aggregator.carried == (2 if carries else 0)
    assert aggregator.opened == 1


def test_each_of_two_calls_in_a_message_is_refused_for_itself(
    gateway, aggregator, monkeypatch
) -> None:
    monkeypatch.setattr(calls, "TOGETHER_SECONDS", 60.0)
    offer(aggregator, "a")
    assert gateway.claim("a") is not None
    aggregator.errors["ReportJob"] = [StaleLeaseError("lost", field="lease.token", remedy="stop")]
    with pytest.raises(StaleLeaseError, match="lost"):
        report_beside_claims(gateway)
    assert aggregator.carried == 1


def test_both_calls_in_a_message_outlive_a_stream_that_broke(
    gateway, aggregator, monkeypatch
) -> None:
    monkeypatch.setattr(calls, "TOGETHER_SECONDS", 60.0)
    aggregator.endurance = 1
    offer(aggregator, "a")
    assert gateway.claim("a") is not None
    report_beside_claims(gateway)
    assert aggregator.reports["a"].parts == 2


def test_a_report_waits_for_no_claim_that_was_made_before_it(
    gateway, aggregator, monkeypatch
) -> None:
    monkeypatch.setattr(calls, "TOGETHER_SECONDS", 60.0)
    offer(aggregator, "a", "b")
    assert gateway.claim("a") is not None
    assert gateway.claim("b") is not None
    with ThreadPoolExecutor(1) as behind:
        behind.submit(gateway.report, lambda: parts(1)).result(timeout=HANG_SECONDS)
    assert aggregator.carried == 0


def test_a_report_goes_alone_where_no_claim_follows(gateway, aggregator) -> None:
    offer(aggregator, "a")
    assert gateway.claim("a") is not None
    gateway.report(lambda: parts(1))
    assert (aggregator.calls["ReportJob"], aggregator.carried) == (1, 0)
