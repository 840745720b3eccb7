"""Settled rows, which an evaluator skips."""

import pytest

from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import unpack_answers
from modnorm.wire.conversions import descriptor_from_proto, descriptor_to_proto
from tests.services.evaluator.run_job import AddJob, run_job


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
