"""Permission to lease and report jobs, and repeated reports."""

import random
import uuid
from itertools import islice

import grpc
import pytest
from google.rpc import status_pb2

from modnorm.services.aggregator.api import report_reader
from modnorm.services.aggregator.api.work_stream import MAX_CALLS
from modnorm.services.common.channels import MESSAGE_BYTES
from modnorm.v1 import evaluation_pb2
from modnorm.wire.connection import Credentials
from verification.fuzz.stored import await_jobs
from verification.labs.secured_worker import (
    claimed,
    leased,
    replies_to,
    reply_to,
    report_of,
    reported,
)
from verification.labs.waiting import HANG_SECONDS

REPORT = "/modnorm.v1.JobService/ReportJob"


@pytest.fixture
def experiment(client, spec):
    """An experiment of one team that reuses nothing; cancelled at the end."""
    owner = client("team-a")
    made = owner.submit(spec(name=str(uuid.uuid4())))
    yield made
    owner.cancel(made.id)


@pytest.fixture
def jobs(lab, experiment):
    """The ids of its jobs."""
    return await_jobs(lab, experiment.id)


@pytest.fixture
def worker(channel):
    """A worker's channel."""
    return channel("worker")


def beat(lease, **named):
    return evaluation_pb2.Call(heartbeat=evaluation_pb2.HeartbeatRequest(lease=lease, **named))


def failed(channel, lease, kind, reason="r"):
    request = evaluation_pb2.FailJobRequest(lease=lease, kind=kind, reason=reason)
    reply_to(channel, evaluation_pb2.Call(fail=request))


def test_a_replayed_report_is_counted_once(worker, jobs, stored, refused, client, experiment):
    job = leased(worker, jobs[0])
    report, other = report_of(worker, job), report_of(worker, job, reward=1.0)
    reported(worker, report)
    after_one = stored()
    reported(worker, report)
    reported(worker, other)
    assert stored() == after_one
    for token in (job.lease.token + 1, job.lease.token - 1, 2**63 - 1, -1):
        report[0].header.lease.token = token
        with refused(grpc.StatusCode.ABORTED):
            reported(worker, report)
    assert claimed(worker, jobs[0]) is None
    assert stored() == after_one
    assert client("team-a").get(experiment.id).progress.jobs_done == 1


def test_a_job_that_nobody_leased_cannot_be_reported(worker, jobs, stored, refused):
    job = leased(worker, jobs[0])
    report = report_of(worker, job)
    before = stored()
    report[0].header.lease.job_id = jobs[1]
    for token in (0, 1, -1):
        report[0].header.lease.token = token
        with refused(grpc.StatusCode.ABORTED):
            reported(worker, report)
    report[0].header.lease.job_id = "00000000-0000-0000-0000-000000000000"
    with refused(grpc.StatusCode.NOT_FOUND):
        reported(worker, report)
    assert stored() == before


def test_a_superseded_lease_is_refused(worker, jobs, stored, refused):
    old = leased(worker, jobs[0])
    report = report_of(worker, old)
    failed(worker, old.lease, evaluation_pb2.FAILURE_KIND_RELEASED)
    assert leased(worker, jobs[0], "another").lease.token > old.lease.token
    before = stored()
    with refused(grpc.StatusCode.ABORTED):
        reported(worker, report)
    with refused(grpc.StatusCode.ABORTED):
        reply_to(worker, beat(old.lease))
    with refused(grpc.StatusCode.ABORTED):
        failed(worker, old.lease, evaluation_pb2.FAILURE_KIND_FATAL)
    assert stored() == before


def test_a_foreign_lease_is_refused_separately(worker, channel, jobs, stored, refused):
    theirs = leased(worker, jobs[0], "another").lease
    mine = [leased(worker, job_id).lease for job_id in jobs[1:3]]
    before = stored()
    calls = [beat(mine[0], answers_done=1)]
    for token in (theirs.token + 1, theirs.token - 1, 2**63 - 1, -1):
        lease = evaluation_pb2.Lease(job_id=jobs[0], token=token)
        calls.append(beat(lease, answers_done=2, parked=True))
    calls.append(beat(evaluation_pb2.Lease(job_id="../x" * 1000, token=1)))
    calls.append(beat(mine[1], answers_done=3))
    for name in ("none", "forged", "expired", "read", "submit", "operate"):
        with pytest.raises(grpc.RpcError):
            replies_to(channel(name), *calls)
    assert stored() == before
    replies = replies_to(worker, *calls)
    codes = [status_pb2.Status.FromString(reply.status).code for reply in replies]
    aborted, unknown = (
        code.value[0] for code in (grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND)
    )
    assert codes == [0, *[aborted] * 4, unknown, 0]
    after = stored()
    changed = {name: set(after[name]) ^ set(rows) for name, rows in before.items()}
    of_jobs = changed.pop("jobs")
    assert not any(changed.values())
    assert len(of_jobs) == 2 * len(mine)
    assert all(any(lease.job_id in row for lease in mine) for row in of_jobs)


def test_a_message_of_too_many_calls_changes_nothing(worker, jobs, stored, refused):
    lease = leased(worker, jobs[0]).lease
    before = stored()
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        replies_to(worker, *[beat(lease, answers_done=1)] * (MAX_CALLS + 1))
    assert stored() == before


@pytest.mark.parametrize("field", ["worker", "version"])
def test_a_worker_has_a_short_name(field, worker, jobs, stored, refused):
    before = stored()
    request = evaluation_pb2.ClaimJobRequest(job_id=jobs[0], worker="w")
    setattr(request, field, "w" * 201)
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        reply_to(worker, evaluation_pb2.Call(claim=request))
    assert stored() == before


def test_a_failure_says_why_in_a_few_lines(worker, jobs, client, experiment, caplog):
    lease = leased(worker, jobs[0]).lease
    failed(worker, lease, evaluation_pb2.FAILURE_KIND_CANDIDATE, "why " * 10**6)
    (told,) = islice((e for e in client("team-a").watch(experiment.id) if "why" in e.message), 1)
    assert len(told.message) < 3000
    assert all(len(record.getMessage()) < 3000 for record in caplog.records)


@pytest.mark.parametrize("name", ["none", "forged", "expired", "read", "submit", "operate"])
def test_only_workers_report(name, channel, worker, jobs, stored):
    report = report_of(worker, leased(worker, jobs[0]))
    before = stored()
    with pytest.raises(grpc.RpcError) as raised:
        reported(channel(name), report)
    assert raised.value.code() in {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
    assert stored() == before


def test_a_report_of_another_descriptor_is_refused(worker, jobs, stored, refused):
    report = report_of(worker, leased(worker, jobs[1]))
    before = stored()
    for spoil in (
        lambda parts: parts[0].header.descriptor.ClearField("seed"),
        lambda parts: setattr(parts[0].header.descriptor, "radius", 99.0),
        lambda parts: setattr(parts[0].header, "score_seconds", float("nan")),
        lambda parts: setattr(parts[1].answers.answers[0], "reward", float("inf")),
        lambda parts: setattr(parts[1].answers.answers[0], "row", 1),
        lambda parts: setattr(parts[1].answers.answers[0], "tokens", -1),
        lambda parts: parts[1].answers.answers.add(row=3),
        lambda parts: setattr(parts[0].header, "worker", "w" * 201),
        lambda parts: parts[0].header.environment.update({"gpu": "g" * 2**14}),
        lambda parts: parts.pop(0),
        lambda parts: parts.pop(1),
        lambda parts: parts.reverse(),
        lambda parts: parts.append(parts[0]),
        lambda parts: parts.clear(),
    ):
        parts = [type(part).FromString(part.SerializeToString()) for part in report]
        spoil(parts)
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            reported(worker, parts)
    assert stored() == before


def test_invalid_queue_messages_are_refused(worker, stored, refused):
    noise, before = random.Random(3), stored()
    for content in (b"\xff" * 9, b"\x0a\x02\xff\xfe", b"\x0a\x01", noise.randbytes(200)):
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            worker.stream_unary(REPORT)(iter([content]), timeout=HANG_SECONDS)
    assert stored() == before


@pytest.mark.parametrize("name", ["worker", "none"])
def test_an_oversized_message_is_refused(name, channel, stored):
    before = stored()
    sent = channel(name).stream_unary(REPORT)
    with pytest.raises(grpc.RpcError) as raised:
        sent(iter([bytes(MESSAGE_BYTES + 1)]), timeout=HANG_SECONDS)
    expected = {
        "worker": grpc.StatusCode.RESOURCE_EXHAUSTED,
        "none": grpc.StatusCode.UNAUTHENTICATED,
    }
    assert raised.value.code() is expected[name]
    assert stored() == before


@pytest.mark.parametrize("path", ["/grpc.health.v1.Health/Check", REPORT])
def test_a_packed_message_is_not_unpacked(path, channel, refused):
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        channel("none").unary_unary(path)(
            b"\x12\x02" + bytes(2), compression=grpc.Compression.Gzip
        )


def test_an_endless_report_is_refused(worker, jobs, stored, refused, monkeypatch):
    monkeypatch.setattr(report_reader, "MAX_REPORT_BYTES", 100_000)
    report = report_of(worker, leased(worker, jobs[0]))
    report[1].answers.answers[0].completion = "x" * 30_000
    before = stored()
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        reported(worker, [report[0], *[report[1]] * 1000])
    assert stored() == before


def test_a_token_is_valid_in_one_lab_only(lab, channel, refused, tokens):
    text = tokens["worker"].token.get_secret_value()
    elsewhere = Credentials(token=type(tokens["worker"].token)(text[:-2]))
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        claimed(channel(elsewhere), "j")
