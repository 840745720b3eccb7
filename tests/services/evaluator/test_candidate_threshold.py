"""Work that an evaluator skips: candidates below the threshold and settled rows."""

from unittest.mock import create_autospec

import pytest

from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.stopping import Threshold
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.lease import CandidateLease, Heartbeats
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.tasks.countdown import Countdown
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import unpack_answers
from modnorm.wire.conversions import descriptor_from_proto, descriptor_to_proto
from tests.services.evaluator.run_job import AddJob, run_job

NO_HEARTBEATS = create_autospec(Heartbeats)
PERFECT = messages.Threshold(reward=1.1, index=1)


def test_a_candidate_below_the_threshold_is_reported_as_stopped(
    runner: JobRunner, aggregator, add_job: AddJob
) -> None:
    add_job(candidate=3).threshold.CopyFrom(PERFECT)
    run_job(runner, "a")
    report = aggregator.reports["a"]
    assert report.stopped
    assert unpack_answers(report.answers) == ()
    assert descriptor_from_proto(report.descriptor).coefficients
    assert "torch" in report.environment
    assert not aggregator.failures


def test_heartbeats_raise_the_threshold(runner: JobRunner, aggregator, add_job: AddJob) -> None:
    add_job(candidate=3, max_tokens=1_000)
    aggregator.threshold = PERFECT
    run_job(runner, "a")
    assert aggregator.reports["a"].stopped
    assert len(unpack_answers(aggregator.reports["a"].answers)) < 5


@pytest.mark.parametrize(
    "changes", [{"candidate": -1}, {"candidate": 3, "split": messages.SPLIT_HELDOUT}]
)
def test_the_base_and_experts_have_no_threshold(
    runner: JobRunner, aggregator, add_job: AddJob, changes: dict[str, int]
) -> None:
    add_job(**changes).threshold.CopyFrom(PERFECT)
    aggregator.threshold = PERFECT
    run_job(runner, "a")
    report = aggregator.reports["a"]
    assert not report.stopped
    assert [answer.row for answer in unpack_answers(report.answers)] == [0, 1, 2, 3, 4]


def test_settled_rows_are_skipped(runner: JobRunner, aggregator, add_job: AddJob) -> None:
    job = add_job(candidate=3, split=messages.SPLIT_HELDOUT)
    job.skipped_rows.extend([0, 2, 4])
    run_job(runner, "a")
    assert [answer.row for answer in unpack_answers(aggregator.reports["a"].answers)] == [1, 3]


def test_an_expert_without_open_rows_is_reported_without_a_model(
    runner: JobRunner, aggregator, add_job: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = add_job(candidate=3, split=messages.SPLIT_HELDOUT)
    job.skipped_rows.extend(range(5))
    resolved = Descriptor("portable-v1", 3, "randopt", 0.005, "s", (0.5, 0.25))
    job.descriptor.CopyFrom(descriptor_to_proto(resolved))
    monkeypatch.setattr(runner.scorer, "_load", None)
    run_job(runner, "a")
    report = aggregator.reports["a"]
    assert descriptor_from_proto(report.descriptor) == resolved
    assert unpack_answers(report.answers) == ()
    assert not report.environment
    assert not aggregator.failures


def test_a_threshold_never_falls() -> None:
    job = messages.Job(split=messages.SPLIT_SELECTION, candidate=3)
    lease = CandidateLease(NO_HEARTBEATS, job, Shutdown(0.0))
    seen = []
    for reward, index in ((0.5, 2), (0.4, 0), (0.5, 7), (0.5, 1), (0.6, 9)):
        lease.raise_threshold(messages.Threshold(reward=reward, index=index))
        seen.append(lease.threshold)
    assert seen == [Threshold(0.5, 2)] * 3 + [Threshold(0.5, 1), Threshold(0.6, 9)]


def test_a_task_that_states_no_bounds_is_never_stopped() -> None:
    job = messages.Job(split=messages.SPLIT_SELECTION, candidate=3, threshold=PERFECT)
    silent = type("Silent", (Countdown,), {"reward_bounds": None})()
    lease = CandidateLease(NO_HEARTBEATS, job, Shutdown(0.0))
    assert lease.early_stop(Countdown()) is not None
    assert lease.early_stop(silent) is None
