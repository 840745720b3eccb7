"""Permission to lease and report jobs, and repeated reports."""

import dataclasses
import uuid
import zlib
from itertools import count

import grpc
import pytest

from modnorm.v1 import evaluation_pb2
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.answer_sheets import MAX_BYTES, pack_answers, pack_text, unpack_answers
from verification.fuzz.stored import await_jobs
from verification.labs.bundled_tasks import bundled_task
from verification.labs.secured_lab import claimed, leased, report_of, reported
from verification.labs.waiting import HANG_SECONDS

CAPS = count(20)


@pytest.fixture
def experiment(client, spec):
    """An experiment of one team that reuses nothing, by its cap; cancelled at the end."""
    owner = client("team-a")
    task = bundled_task("gsm8k", selection=3, heldout=3, max_tokens=next(CAPS))
    made = owner.submit(spec(name=str(uuid.uuid4()), task=task))
    yield made
    owner.cancel(made.id)


@pytest.fixture
def jobs(lab, experiment):
    return await_jobs(lab, experiment.id)


@pytest.fixture
def worker(channel):
    return channel("worker")


def beat(channel, *leases, **named):
    """Send heartbeats in one call; return the states of the leases."""
    progress = [evaluation_pb2.LeaseProgress(lease=lease, **named) for lease in leases]
    request = evaluation_pb2.HeartbeatRequest(leases=progress)
    return JobServiceStub(channel).Heartbeat(request, timeout=HANG_SECONDS).leases


def failed(channel, lease, kind, reason="r"):
    request = evaluation_pb2.FailJobRequest(lease=lease, kind=kind, reason=reason)
    JobServiceStub(channel).FailJob(request, timeout=HANG_SECONDS)


def test_a_replayed_report_is_counted_once(worker, jobs, stored, refused, client, experiment):
    job = leased(worker, jobs[0])
    report, other = report_of(worker, job), report_of(worker, job, reward=1.0)
    reported(worker, report)
    after_one = stored()
    reported(worker, report)
    reported(worker, other)
    assert stored() == after_one
    for token in (job.lease.token + 1, job.lease.token - 1, 2**63 - 1, -1):
        report.lease.token = token
        with refused(grpc.StatusCode.ABORTED):
            reported(worker, report)
    assert stored() == after_one
    assert claimed(worker, jobs[0]) is None
    assert client("team-a").get(experiment.id).progress.jobs_done == 1


def test_a_job_that_nobody_leased_cannot_be_reported(worker, jobs, stored, refused):
    job = leased(worker, jobs[0])
    report = report_of(worker, job)
    before = stored()
    report.lease.job_id = jobs[1]
    for token in (0, 1, -1):
        report.lease.token = token
        with refused(grpc.StatusCode.ABORTED):
            reported(worker, report)
    report.lease.job_id = "00000000-0000-0000-0000-000000000000"
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
    assert beat(worker, old.lease)[0].lost
    with refused(grpc.StatusCode.ABORTED):
        failed(worker, old.lease, evaluation_pb2.FAILURE_KIND_FATAL)
    assert stored() == before


def test_a_foreign_lease_is_refused_separately(worker, channel, jobs, stored):
    theirs = leased(worker, jobs[0], "another").lease
    mine = [leased(worker, job_id).lease for job_id in jobs[1:3]]
    before = stored()
    foreign = [
        evaluation_pb2.Lease(job_id=jobs[0], token=token)
        for token in (theirs.token + 1, theirs.token - 1, 2**63 - 1, -1)
    ]
    leases = (mine[0], *foreign, evaluation_pb2.Lease(job_id="../x" * 1000, token=1), mine[1])
    for name in ("none", "forged", "expired", "read", "submit", "operate"):
        with pytest.raises(grpc.RpcError):
            beat(channel(name), *leases)
    assert stored() == before
    states = beat(worker, *leases, answers_done=1)
    assert [bool(state.lost) for state in states] == [False, *[True] * 5, False]
    after = stored()
    changed = {name: set(after[name]) ^ set(rows) for name, rows in before.items()}
    of_jobs = changed.pop("jobs")
    assert not any(changed.values())
    assert len(of_jobs) == 2 * len(mine)
    assert all(any(lease.job_id in row for lease in mine) for row in of_jobs)


def spoil_sheet(report, **changes):
    first, *others = unpack_answers(report.answers)
    report.answers = pack_answers([dataclasses.replace(first, **changes), *others])


def test_a_report_of_another_descriptor_is_refused(worker, jobs, stored, refused):
    report = report_of(worker, leased(worker, jobs[1]))
    before = stored()
    for spoil in (
        lambda report: report.descriptor.ClearField("seed"),
        lambda report: setattr(report.descriptor, "radius", 99.0),
        lambda report: spoil_sheet(report, reward=1e31),
        lambda report: spoil_sheet(report, tokens="2"),
        lambda report: setattr(report, "answers", pack_text("[[0, 1e999]]")),
        lambda report: setattr(report, "answers", report.answers[:-1]),
        lambda report: setattr(report, "worker", "w" * 201),
        lambda report: report.environment.update({"gpu": "g" * 2**14}),
        lambda report: report.ClearField("answers"),
    ):
        spoiled = type(report).FromString(report.SerializeToString())
        spoil(spoiled)
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            reported(worker, spoiled)
    report.answers = zlib.compress(bytes(MAX_BYTES + 1))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        reported(worker, report)
    assert stored() == before
