import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from modnorm import __version__
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.engines import GenerationLimits, load_engine
from modnorm.errors import CancelledError, StaleLeaseError, UnauthenticatedError, UnavailableError
from modnorm.search.scoring import PromptedRows, answer_candidate
from modnorm.services.evaluator import job_runner, model_cache
from modnorm.services.evaluator.job_runner import LONGEST_PAUSE
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows
from modnorm.tasks.row_loading import load_data
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import unpack_answers
from modnorm.wire.conversions import descriptor_from_proto
from tests.services.evaluator.run_job import run_job

DECLARATION = """
name: sums
max_tokens: 8
columns: [left, right, sum]
prompt: {user: "{left} + {right} = "}
answer: sum
extract: {regex: "[0-9]+"}
compare: number
"""


def test_a_job_is_reported_as_the_library_scores_it(
    runner, aggregator, add_job, checkpoint, scale_map
):
    job = add_job(max_tokens=32)
    run_job(runner, job)
    report = aggregator.reports["a"]

    task = get_task("countdown")
    rows = load_data(
        task, DataSpec(source="bundled:countdown-selection", limit=5), field="task.selection"
    ).rows
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(task.messages(row)) for row in rows]
    with ThreadPoolExecutor(1) as judges:
        expected = answer_candidate(
            load_engine("transformers", checkpoint),
            PromptedRows(task, rows, prompts, GenerationLimits(32)),
            descriptor_from_proto(job.descriptor),
            scale_map,
            judges=judges,
            on_progress=lambda _: None,
        )
        answers = expected.judge.answers()
    assert descriptor_from_proto(report.descriptor) == expected.descriptor
    assert report.lease == job.lease
    assert report.worker == "tester"
    recorded = {"python", "torch", "transformers", "device", "threads", "engine"}
    assert recorded <= report.environment.keys()
    assert report.environment["modnorm"] == __version__
    assert unpack_answers(report.answers) == answers
    assert not aggregator.failures


def test_rows_and_model_are_kept_between_jobs(runner, aggregator, add_job):
    for job_id in "abc":
        run_job(runner, add_job(job_id))
    assert set(aggregator.reports) == {"a", "b", "c"}
    assert aggregator.calls["FetchArtifact"] == 2
    first, *others = (report.answers for report in aggregator.reports.values())
    assert all(answers == first for answers in others)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"radius": 1e37}, messages.FAILURE_KIND_CANDIDATE),
        ({"model_digest": "0" * 64}, messages.FAILURE_KIND_FATAL),
        ({"scorer": "countdown-v0"}, messages.FAILURE_KIND_FATAL),
        ({"engine": "abacus"}, messages.FAILURE_KIND_INFRASTRUCTURE),
        ({"max_tokens": 10_000}, messages.FAILURE_KIND_FATAL),
    ],
)
def test_a_failed_job_gives_no_score_and_does_not_end_the_worker(
    runner, aggregator, add_job, changes, kind
):
    run_job(runner, add_job("bad", **changes))
    failure = aggregator.failures["bad"]
    assert failure.kind == kind
    assert failure.reason
    assert failure.lease.token == 7
    assert not runner._heartbeats._leases
    run_job(runner, add_job("good"))
    assert set(aggregator.reports) == {"good"}


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "chess"},
        {"task": "my-task.yaml"},
        {"task": "sums", "declaration": DECLARATION},  # another version has another scorer
    ],
)
def test_a_job_with_a_missing_task_is_released_without_an_attempt(
    runner, aggregator, add_job, caplog, changes
):
    run_job(runner, add_job("bad", scorer="sums-v1", **changes))
    failure = aggregator.failures["bad"]
    assert failure.kind == messages.FAILURE_KIND_RELEASED
    assert f"does not have {changes['task']} with the scorer sums-v1" in failure.reason
    assert failure.reason in caplog.text
    assert "FetchArtifact" not in aggregator.calls
    assert runner.pause == 0


def test_a_declared_task_comes_with_its_job(runner, aggregator, add_job):
    task = get_task("sums", declaration=DECLARATION)
    digest = aggregator.keep_rows(encode_rows([{"left": "1", "right": "2", "sum": "3"}]))
    changes = {"task": "sums", "scorer": task.scorer, "declaration": DECLARATION}
    run_job(runner, add_job("a", max_tokens=4, rows_digest=digest, **changes))
    assert not aggregator.failures
    assert [answer.row for answer in unpack_answers(aggregator.reports["a"].answers)] == [0]


def test_rows_with_a_wrong_digest_are_refused(runner, aggregator, add_job):
    job = add_job()
    aggregator.rows[job.rows_digest] = aggregator.rows[job.rows_digest][1:]
    run_job(runner, job)
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert "digest" in aggregator.failures["a"].reason
    assert not aggregator.reports


def test_a_cancelled_job_is_dropped(runner, aggregator, add_job):
    aggregator.cancel = True
    run_job(runner, add_job(max_tokens=1500, radius=0.1))
    assert not aggregator.reports
    assert not aggregator.failures
    assert aggregator.heartbeats[-1].answers_done < 5
    aggregator.cancel = False
    run_job(runner, add_job("b"))
    assert "b" in aggregator.reports


@pytest.mark.parametrize("method", ["Heartbeat", "ReportJob"])
def test_a_lost_lease_is_dropped_quietly(runner, aggregator, add_job, method):
    aggregator.errors[method] = [StaleLeaseError("the lease is lost")]
    run_job(runner, add_job(max_tokens=1500, radius=0.1))
    assert not aggregator.reports
    assert not aggregator.failures


def test_a_stopping_worker_releases_its_job(runner, aggregator, add_job, shutdown):
    shutdown.request()
    run_job(runner, add_job())
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_RELEASED
    assert not aggregator.reports


@pytest.mark.parametrize("shutdown", [Shutdown(grace=60.0)])
def test_a_grace_period_lets_the_job_finish_and_be_reported(runner, aggregator, add_job, shutdown):
    aggregator.errors["ReportJob"] = [UnavailableError("stopping too")] * 3
    shutdown.request()
    run_job(runner, add_job())
    assert set(aggregator.reports) == {"a"}
    assert not aggregator.failures


@pytest.mark.parametrize("error", [UnavailableError("starting"), CancelledError("stopping")])
def test_an_aggregator_that_is_down_or_stops_is_waited_for(runner, aggregator, add_job, error):
    for method in ("ClaimJob", "FetchArtifact", "ReportJob"):
        aggregator.errors[method] = [error] * 2
    run_job(runner, add_job())
    assert set(aggregator.reports) == {"a"}
    assert not aggregator.failures


def test_a_stopping_worker_does_not_wait(runner, aggregator, add_job, shutdown):
    aggregator.errors["ClaimJob"] = [UnavailableError("down")] * 100
    shutdown.request()
    run_job(runner, add_job())
    assert "a" in aggregator.jobs


def test_consecutive_failures_slow_a_worker_down(runner, aggregator, add_job):
    assert runner.pause == 0.0
    pauses = []
    for attempt in range(8):
        run_job(runner, add_job(f"bad{attempt}", engine="abacus"))
        pauses.append(runner.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] > 0
    assert pauses[-1] == LONGEST_PAUSE
    run_job(runner, add_job("good"))
    assert runner.pause == 0.0


def test_a_model_is_loaded_before_its_first_job(make_runner, aggregator, add_job):
    loads: list[object] = []

    def load(*told):
        loads.append(told)
        return load_engine(*told)

    runner = make_runner(load)
    runner.warm(messages.Job(model_digest="0" * 64))  # fails, which its job would report
    job = add_job()
    runner.warm(job)
    runner.warm(job)
    run_job(runner, job)
    assert len(loads) == 1
    assert set(aggregator.reports) == {"a"}


def test_jobs_of_an_experiment_that_a_worker_is_unfit_for_are_left_to_others(
    runner, aggregator, add_job, monkeypatch
):
    monkeypatch.setattr(job_runner, "UNFIT_SECONDS", 1_000.0)
    for number in range(3):
        add_job(f"program{number}", task="mbpp", experiment_id=f"of programs {number % 2}")
    add_job("good")
    for _ in range(4):
        run_job(runner, "the next")
    assert set(aggregator.reports) == {"good"}
    assert [failure.unfit for failure in aggregator.failures.values()] == [True] * 2
    assert aggregator.unfit[-1] == ("of programs 0", "of programs 1")
    assert runner.pause == 0.0
    runner._unfit = dict.fromkeys(runner._unfit, time.monotonic())
    claimed = runner.claim()
    assert claimed is not None
    runner.pass_on(claimed, "it is tried again")


def test_a_job_that_is_passed_on_is_not_released_again(runner, aggregator, add_job):
    add_job()
    claimed = runner.claim()
    assert claimed is not None
    runner.pass_on(claimed, "the worker is stopping")
    runner.release()
    assert aggregator.calls["FailJob"] == 1


def test_a_job_is_released_once_a_token_is_replaced(runner, aggregator, add_job):
    add_job()
    claimed = runner.claim()
    assert claimed is not None
    aggregator.errors["FailJob"] = [UnauthenticatedError("the token is revoked")]
    runner.release()
    runner._heartbeats.remove(claimed)
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_RELEASED


def test_no_engine_is_loaded_for_a_model_without_a_tokenizer(
    make_runner, aggregator, add_job, monkeypatch
):
    def fail(_):
        raise OSError("the disk failed")

    monkeypatch.setattr(model_cache, "PromptEncoder", fail)
    run_job(make_runner(lambda *_: pytest.fail("an engine is loaded")), add_job())
    assert aggregator.failures["a"].reason == "OSError: the disk failed"
