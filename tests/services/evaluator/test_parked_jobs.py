"""Jobs that are parked half answered, with their leases, while others go first."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Completion, Engine, EngineSettings, GenerationLimits, load_engine
from modnorm.errors import EngineError, StaleLeaseError, UnavailableError
from modnorm.search.scoring import AnswerJudge
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.model_cache import Loading
from modnorm.services.evaluator.replay_canary import PROMPTS
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.services.evaluator.watchdog import Watchdog
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import begin_job, run_job
from verification.labs.waiting import HANG_SECONDS, wait_until

AddJob = Callable[..., messages.Job]
MakeRunner = Callable[..., JobRunner]
PERFECT = messages.Threshold(reward=1.1, index=1)
RELEASED = messages.FAILURE_KIND_RELEASED
THIRD = 3
INFRASTRUCTURE = messages.FAILURE_KIND_INFRASTRUCTURE


@pytest.fixture
def add(add_job: AddJob) -> AddJob:
    """Add a job that may be parked; candidates differ in their radius."""

    def add(job_id: str, **changes: str | int) -> messages.Job:
        candidate = ord(job_id) - ord("a") + 3
        told = {"candidate": candidate, "may_stop": True, "radius": 0.005 * candidate}
        return add_job(job_id, **{**told, **changes})

    return add


@pytest.fixture
def parking_runner(make_runner: MakeRunner) -> JobRunner:
    """A runner that parks up to three jobs."""
    return make_runner(parked_limit=3)


def begin(runner: JobRunner, names: str) -> None:
    for job_id in names:
        begin_job(runner, job_id)


def finish(runner: JobRunner) -> None:
    while runner.has_parked:
        runner.continue_parked()
    runner._background.wait()


def kinds(aggregator) -> dict[str, int]:
    return {name: failure.kind for name, failure in aggregator.failures.items()}


def test_parked_jobs_are_reported_as_if_never_parked(
    parking_runner: JobRunner, make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    for job_id in "abcd":
        add(job_id)
    begin(parking_runner, "ab")
    assert not aggregator.reports
    assert parking_runner.has_parked
    begin(parking_runner, "cd")
    finish(parking_runner)
    reports = dict(aggregator.reports)
    assert set(reports) == set("abcd")
    assert not aggregator.failures
    through = make_runner()
    for job_id in "abcd":
        add(job_id)
        run_job(through, job_id)
        again = aggregator.reports[job_id]
        assert again is not reports[job_id]
        assert again.answers == reports[job_id].answers
        assert again.descriptor == reports[job_id].descriptor
    assert len({report.descriptor.SerializeToString() for report in reports.values()}) == 4


def test_jobs_are_parked_up_to_the_limit_then_the_best_continues(
    parking_runner: JobRunner, aggregator, add: AddJob
) -> None:
    for job_id in "abc":
        add(job_id)
    begin(parking_runner, "abc")
    parking_runner._background.wait()
    assert len(aggregator.reports) == 1
    assert len(parking_runner._parked) == 2


@pytest.mark.parametrize("changes", [{"may_stop": False}, {"candidate": -1}])
def test_a_job_without_early_stop_is_never_parked(
    parking_runner: JobRunner, aggregator, add: AddJob, changes: dict[str, int]
) -> None:
    add("a", **changes)
    begin_job(parking_runner, "a")
    assert not parking_runner.has_parked
    parking_runner._background.wait()
    assert set(aggregator.reports) == {"a"}


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "what the evaluator does", pause=0.01)


def wait_for_heartbeat(aggregator) -> None:
    """Wait until a heartbeat sent after this call was answered."""
    before = len(aggregator.heartbeats)
    until(lambda: len(aggregator.heartbeats) >= before + 3)


def test_a_parked_job_is_stopped_by_a_raised_threshold(
    parking_runner: JobRunner, aggregator, add: AddJob
) -> None:
    add("a")
    begin_job(parking_runner, "a")
    beats = len(aggregator.heartbeats)
    aggregator.threshold = PERFECT
    wait_for_heartbeat(aggregator)
    assert all(beat.lease.job_id == "a" for beat in aggregator.heartbeats[beats:])
    finish(parking_runner)
    report = aggregator.reports["a"]
    assert report.stopped
    assert len(report.answers) >= 3
    assert not aggregator.failures


def test_a_parked_job_that_is_cancelled_ends_at_its_turn(
    parking_runner: JobRunner, aggregator, add: AddJob
) -> None:
    add("a")
    begin_job(parking_runner, "a")
    aggregator.cancel = True
    wait_for_cancel(parking_runner)
    aggregator.cancel = False
    assert parking_runner.has_parked
    finish(parking_runner)
    assert not aggregator.reports
    assert not aggregator.failures
    add("b")
    run_job(parking_runner, "b")
    assert set(aggregator.reports) == {"b"}


def wait_for_cancel(runner: JobRunner) -> None:
    """Wait until a response to a heartbeat has cancelled the jobs."""
    until(lambda: all(thread.name != "heartbeat" for thread in threading.enumerate()))
    assert runner.has_parked


@pytest.mark.parametrize(
    "changes", [{"experiment_id": "another"}, {"split": messages.SPLIT_HELDOUT}]
)
def test_a_job_of_another_state_is_passed_on_and_parked_jobs_are_finished(
    parking_runner: JobRunner, aggregator, add: AddJob, changes: dict[str, str | int]
) -> None:
    add("a")
    add("b", **changes)
    begin(parking_runner, "ab")
    assert not parking_runner.has_parked
    parking_runner._background.wait()
    assert set(aggregator.reports) == {"a"}
    assert kinds(aggregator) == {"b": RELEASED}
    add("b", **changes)
    run_job(parking_runner, "b")
    assert set(aggregator.reports) == {"a", "b"}


def test_a_job_of_another_lineage_is_passed_on(
    parking_runner: JobRunner, aggregator, add: AddJob
) -> None:
    add("a")
    add("b").descriptor.lineage_digest = "another"
    begin(parking_runner, "ab")
    parking_runner._background.wait()
    assert set(aggregator.reports) == {"a"}
    assert kinds(aggregator) == {"b": RELEASED}


def test_one_message_extends_all_leases(
    parking_runner: JobRunner, aggregator, add: AddJob
) -> None:
    for job_id in "abc":
        add(job_id)
    begin(parking_runner, "ab")
    aggregator.said.clear()
    until(lambda: len(aggregator.said) >= 8)
    assert {tuple(jobs) for jobs in aggregator.said[1:-1]} == {("a", "b")}
    assert {beat.lease.job_id for beat in aggregator.heartbeats[-4:]} == {"a", "b"}
    aggregator.cancel = True
    wait_for_cancel(parking_runner)
    finish(parking_runner)
    assert not aggregator.reports


def test_closing_releases_parked_jobs(parking_runner: JobRunner, aggregator, add: AddJob) -> None:
    add("a")
    add("b")
    begin(parking_runner, "ab")
    parking_runner.close()
    assert kinds(aggregator) == {"a": RELEASED, "b": RELEASED}
    assert not aggregator.reports
    assert not parking_runner.has_parked


def test_parked_jobs_share_one_wait_for_an_aggregator_that_is_down(
    parking_runner: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    for job_id in "ab":
        add(job_id)
    begin(parking_runner, "ab")
    shutdown.request()
    aggregator.errors["FailJob"] = [UnavailableError("down")] * 2
    parking_runner.close()
    assert aggregator.calls["FailJob"] == 1
    assert not aggregator.failures
    assert not parking_runner.has_parked


@pytest.mark.parametrize("shutdown", [Shutdown(grace=60.0)])
def test_parked_jobs_are_released_when_the_aggregator_is_back(
    parking_runner: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    for job_id in "abc":
        add(job_id)
    begin(parking_runner, "ab")
    shutdown.request()
    down, lost = UnavailableError("down"), StaleLeaseError("lost")
    aggregator.errors["FailJob"] = [down, lost, None]
    parking_runner.close()
    assert aggregator.calls["FailJob"] == 3
    assert kinds(aggregator) == {"b": RELEASED}


def test_abandoned_jobs_are_released_by_a_worker_that_does_not_stop(
    parking_runner: JobRunner, aggregator, add: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("a")
    begin(parking_runner, "a")
    with monkeypatch.context() as changed:
        changed.setattr(parking_runner._client, "release", hang)
        with pytest.raises(TimeoutError):
            parking_runner.close()
    parking_runner.release()
    assert kinds(aggregator) == {"a": RELEASED}


def hang(*_: object) -> None:
    raise TimeoutError


@pytest.mark.parametrize("shutdown", [Shutdown(grace=60.0)])
def test_a_stopping_worker_releases_parked_jobs(
    parking_runner: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    add("a")
    begin_job(parking_runner, "a")
    shutdown.request()
    run_job(parking_runner, "none")
    parking_runner.continue_parked()
    assert parking_runner.has_parked
    parking_runner.close()
    assert kinds(aggregator) == {"a": RELEASED}


class Breaking:
    """Makes engines in which something happens after the first answer of the third job."""

    def __init__(self, then: Callable[[], None], *, aborts: bool = True) -> None:
        self._then = then
        self._aborts = aborts
        self._begun = 0
        self._broken = False

    def load(self, name: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
        self._broken = False
        engine = load_engine(name, checkpoint, settings)
        engine.generate = partial(self._generate, engine.generate)  # type: ignore[method-assign]  # faults are injected at the protocol
        return engine

    def _generate(
        self,
        generate: Callable[..., Iterator[Completion]],
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        self._begun += len(prompts) != PROMPTS  # prompts of the replay belong to no job
        mine = self._begun
        try:
            for completion in generate(prompts, limits, poll=poll):
                yield completion
                if mine == THIRD and len(prompts) != PROMPTS:
                    self._happen()
        finally:
            if self._broken and not self._aborts:
                raise EngineError("it does not even abort")

    def _happen(self) -> None:
        try:
            self._then()
        except EngineError:
            self._broken = True
            raise


def broken() -> None:
    raise EngineError("broken")


@pytest.mark.parametrize("aborts", [True, False])
def test_a_failed_engine_costs_only_the_active_job_an_attempt(
    make_runner: MakeRunner, aggregator, add: AddJob, *, aborts: bool
) -> None:
    breaking = Breaking(broken, aborts=aborts)
    runner = make_runner(Loading(roots=(), load=breaking.load), parked_limit=3)
    for job_id in "abc":
        add(job_id)
    begin(runner, "abc")
    assert kinds(aggregator) == {"a": RELEASED, "b": RELEASED, "c": INFRASTRUCTURE}
    assert not runner.has_parked
    assert runner.pause == 2.0
    add("d")
    run_job(runner, "d")
    assert set(aggregator.reports) == {"d"}


def test_a_hang_costs_only_the_active_job_an_attempt(
    make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    found: list[dict[str, int]] = []

    def watch() -> None:
        runner.abandon()
        found.append(kinds(aggregator))

    runner = make_runner(Loading(roots=(), load=Breaking(watch).load), parked_limit=3)
    for job_id in "abc":
        add(job_id)
    begin(runner, "abc")
    assert found[0] == {"a": RELEASED, "b": RELEASED, "c": INFRASTRUCTURE}


def test_the_watchdog_expects_nothing_while_all_jobs_are_parked(
    make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    watchdog = Watchdog(HANG_SECONDS)
    runner = make_runner(watchdog=watchdog, parked_limit=3)
    add("a")
    begin_job(runner, "a")
    assert watchdog._deadline == float("inf")
    add("b")
    begin_job(runner, "b")
    assert watchdog._deadline == float("inf")
    finish(runner)
    assert watchdog._deadline == float("inf")
    assert set(aggregator.reports) == {"a", "b"}


def test_answers_that_cannot_be_judged_fail_their_own_job(
    parking_runner: JobRunner, aggregator, add: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("a")
    begin_job(parking_runner, "a")

    def out_of_bounds(self: AnswerJudge) -> None:
        self.rewards.append(1e9)

    with monkeypatch.context() as changed:
        changed.setattr(AnswerJudge, "collect_rewards", out_of_bounds)
        parking_runner.continue_parked()
    assert kinds(aggregator) == {"a": messages.FAILURE_KIND_FATAL}
    assert not parking_runner.has_parked
