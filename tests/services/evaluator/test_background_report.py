"""A job that is judged and reported while the engine works on the next job."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, load_engine
from modnorm.errors import CandidateError
from modnorm.services.evaluator.job_runner import BackgroundReport
from modnorm.tasks import Task
from modnorm.tasks.protocol import Judgement, Row
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import AddJob, MakeRunner, begin_job, run_job
from verification.labs.waiting import HANG_SECONDS


class Stage:
    """A runner whose judge of the first job waits; it records the order of events."""

    def __init__(self, make_runner: MakeRunner) -> None:
        self.noted: list[str] = []
        self.judge = threading.Event()
        self.candidates = 0
        self.on_second: Callable[[], None] = self.judge.set
        self.runner = make_runner(self._load)
        self.before: Callable[[str], None] = self._wait
        tasks = self.runner.scorer._tasks
        made = tasks.of

        def staged(job: messages.Job) -> Task:
            job_id, task = job.lease.job_id, made(job)
            return cast("Task", Staged(task, lambda: self.before(job_id)))

        tasks.of = staged  # type: ignore[method-assign]  # the judge waits

    def run_both(self, add_job: AddJob) -> None:
        """Begin two jobs one after the other, then finish their reports."""
        for job_id in "ab":
            begin_job(self.runner, add_job(job_id))
        self.runner.close()

    def _load(self, name: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
        engine = load_engine(name, checkpoint, settings)
        plain = engine.candidate

        @contextmanager
        def candidate(*told: object) -> Iterator[object]:
            self.candidates += 1
            self.noted.append(f"candidate {self.candidates}")
            with plain(*told) as resolved:  # type: ignore[arg-type]  # passed through
                if self.candidates == 2:
                    self.on_second()
                yield resolved

        engine.candidate = candidate  # type: ignore[method-assign, assignment]  # notes
        return engine

    def _wait(self, job_id: str) -> None:
        assert self.judge.wait(HANG_SECONDS), "no other candidate began meanwhile"
        self.noted.append(f"judged {job_id}")


class Staged:
    """A task that does something before each judgement."""

    def __init__(self, task: Task, before: Callable[[], None]) -> None:
        self._task = task
        self._before = before

    def __getattr__(self, name: str) -> object:
        return getattr(self._task, name)

    def judge(self, row: Row, completion: str) -> Judgement:
        self._before()
        return self._task.judge(row, completion)


@pytest.fixture
def stage(make_runner):
    stage = Stage(make_runner)
    yield stage
    stage.judge.set()


def test_the_next_candidate_begins_before_the_answers_of_the_last_are_judged(
    stage, aggregator, add_job
):
    stage.run_both(add_job)
    assert set(aggregator.reports) == {"a", "b"}
    assert aggregator.reports["a"].answers == aggregator.reports["b"].answers
    assert stage.noted.index("candidate 2") < stage.noted.index("judged a")


def test_a_background_failure_is_reported_for_its_job_and_keeps_the_engine(
    stage, aggregator, add_job
):
    def fail():
        stage.judge.set()
        while "a" not in aggregator.failures:
            threading.Event().wait(0.01)

    stage.on_second = fail
    wait = stage.before

    def break_first(job_id):
        wait(job_id)
        if job_id == "a":
            raise OSError("the sandbox is gone")

    stage.before = break_first
    stage.run_both(add_job)
    assert set(aggregator.reports) == {"b"}
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert "the sandbox is gone" in aggregator.failures["a"].reason
    assert stage.runner._metrics.model_loads._value.get() == 1


def test_a_failure_at_the_engine_keeps_the_background_report(stage, aggregator, add_job):
    def fail():
        stage.judge.set()
        raise CandidateError("NaN")

    stage.on_second = fail
    stage.run_both(add_job)
    assert set(aggregator.reports) == {"a"}
    assert aggregator.failures["b"].kind == messages.FAILURE_KIND_CANDIDATE


def test_a_background_job_is_released_at_the_end_of_the_grace_period(
    stage, aggregator, add_job, shutdown
):
    begin_job(stage.runner, add_job("a"))
    shutdown.request()
    stage.runner._background.wait()
    assert not aggregator.reports
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_RELEASED


def test_a_worker_that_does_not_stop_releases_both_jobs(stage, aggregator, add_job):
    def release():
        stage.runner.release()
        stage.judge.set()

    stage.on_second = release
    stage.run_both(add_job)
    kinds = {job_id: failure.kind for job_id, failure in aggregator.failures.items()}
    assert kinds == dict.fromkeys("ab", messages.FAILURE_KIND_RELEASED)


def test_a_hang_fails_the_job_at_the_engine_even_if_the_background_job_ends(
    stage, aggregator, add_job
):
    told: list[tuple[str, int]] = []
    runner = stage.runner

    def note(lease, kind, reason, remedy="", *, unfit=False):
        del reason, remedy, unfit
        told.append((lease.job_id, kind))
        stage.judge.set()
        while len(runner._begun) > 1:
            threading.Event().wait(0.01)

    def note_others(leases, reason):
        told.extend((lease.job_id, messages.FAILURE_KIND_RELEASED) for lease in leases)

    runner._client.fail = note  # returns after the other job has ended
    runner._client.release = note_others
    stage.on_second = runner.abandon
    stage.run_both(add_job)
    assert told == [
        ("b", messages.FAILURE_KIND_INFRASTRUCTURE),
        ("a", messages.FAILURE_KIND_RELEASED),
    ]


def test_a_judge_that_returns_during_the_abandonment_fails_no_other_job(
    stage, aggregator, add_job, monkeypatch
):
    runner, scorer = stage.runner, type(stage.runner.scorer)
    told: list[str] = []

    def hangs(_scorer: object) -> bool:
        """Was overdue; the job ends before the caller acts on it."""
        stage.judge.set()
        while any(job.lease.job_id == "a" for job in runner._begun):
            threading.Event().wait(0.01)
        return True

    def abandon():
        with monkeypatch.context() as patch:
            patch.setattr(scorer, "judge_hangs", property(hangs))
            patch.setattr(runner._client, "fail", lambda lease, *_: told.append(lease.job_id))
            runner.abandon()

    stage.on_second = abandon
    stage.run_both(add_job)
    assert told == ["a"]  # fenced, since its report came first
    assert aggregator.failures["b"].kind == messages.FAILURE_KIND_RELEASED


def test_each_judged_answer_is_a_sign_of_life(stage, aggregator, add_job, monkeypatch):
    beaten, judged = threading.Event(), []

    def wait_after_the_first(job_id):
        judged.append(job_id)
        assert len(judged) == 1 or beaten.wait(20), "no sign of life"

    monkeypatch.setattr(stage.runner.scorer._judging, "beat", beaten.set)
    stage.before = wait_after_the_first
    run_job(stage.runner, add_job())
    assert set(aggregator.reports) == {"a"}


def test_at_most_one_report_runs_in_the_background():
    background, noted, free = BackgroundReport(), [], threading.Event()

    def first():
        assert free.wait(HANG_SECONDS)
        noted.append("first ends")

    background.submit(first)
    threading.Timer(0.05, free.set).start()
    background.submit(lambda: noted.append("second"))
    assert noted[0] == "first ends"
    background.close()
    assert noted == ["first ends", "second"]


def test_an_error_of_the_judge_is_fatal_names_the_row_and_keeps_the_engine(
    stage, aggregator, add_job
):
    def break_down(job_id):
        raise KeyError("x")

    stage.before = break_down
    run_job(stage.runner, add_job("a"))
    failure = aggregator.failures["a"]
    assert failure.kind == messages.FAILURE_KIND_FATAL
    told = (
        "IncompatibleError: task.name: task countdown, selection row 0: KeyError: 'x', raised at"
    )
    assert failure.reason.startswith(f"{told} {__file__}:")
    assert stage.runner.pause == 0.0
    stage.before = lambda job_id: None
    run_job(stage.runner, add_job("b"))
    assert set(aggregator.reports) == {"b"}
    assert stage.runner._metrics.model_loads._value.get() == 1
