"""Jobs that rest in the middle, with their leases kept, while others go first."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Completion, Engine, EngineSettings, GenerationLimits, load_engine
from modnorm.errors import EngineError, StaleLeaseError, UnavailableError
from modnorm.search.judging import AnswerJudge
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.job_runner import JobRunner
from services.evaluator.model_cache import Loading
from services.evaluator.replay_canary import PROMPTS
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import Watchdog
from verification.labs.waiting import HANG_SECONDS, wait_until

AddJob = Callable[..., messages.Job]
MakeRunner = Callable[..., JobRunner]
PERFECT = messages.Bar(reward=1.1, index=1)
RELEASED = messages.FAILURE_KIND_RELEASED
THIRD = 3
INFRASTRUCTURE = messages.FAILURE_KIND_INFRASTRUCTURE


@pytest.fixture
def add(add_job: AddJob) -> AddJob:
    """Put a job on offer that may rest; candidates differ in their radius."""

    def add(job_id: str, **changes: str | int) -> messages.Job:
        candidate = ord(job_id) - ord("a") + 3
        told = {"candidate": candidate, "may_stop": True, "radius": 0.005 * candidate}
        return add_job(job_id, **{**told, **changes})

    return add


@pytest.fixture
def rests(make_runner: MakeRunner) -> JobRunner:
    """A runner that lets three jobs rest."""
    return make_runner(resting=3)


def begin(runner: JobRunner, names: str) -> None:
    for job_id in names:
        runner.begin(job_id)


def finish(runner: JobRunner) -> None:
    while runner.has_parked:
        runner.continue_parked()
    runner._background.wait()


def kinds(aggregator) -> dict[str, int]:
    return {name: failure.kind for name, failure in aggregator.failures.items()}


def test_jobs_that_rested_are_reported_as_if_they_had_run_through(
    rests: JobRunner, make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    for job_id in "abcd":
        add(job_id)
    begin(rests, "ab")
    assert not aggregator.reports
    assert rests.has_parked
    begin(rests, "cd")
    finish(rests)
    rested = dict(aggregator.reports)
    assert set(rested) == set("abcd")
    assert not aggregator.failures
    through = make_runner()
    for job_id in "abcd":
        add(job_id)
        through.run(job_id)
        again = aggregator.reports[job_id]
        assert again is not rested[job_id]
        assert again.answers == rested[job_id].answers
        assert again.header.descriptor == rested[job_id].header.descriptor
    assert len({report.header.descriptor.SerializeToString() for report in rested.values()}) == 4


def test_as_many_rest_as_may_and_then_the_best_goes_on(
    rests: JobRunner, aggregator, add: AddJob
) -> None:
    for job_id in "abc":
        add(job_id)
    begin(rests, "abc")
    rests._background.wait()
    assert len(aggregator.reports) == 1
    assert len(rests._parked) == 2


@pytest.mark.parametrize("changes", [{"may_stop": False}, {"candidate": -1}])
def test_a_job_that_is_never_stopped_never_rests(
    rests: JobRunner, aggregator, add: AddJob, changes: dict[str, int]
) -> None:
    add("a", **changes)
    rests.begin("a")
    assert not rests.has_parked
    rests._background.wait()
    assert set(aggregator.reports) == {"a"}


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "what the evaluator does", pause=0.01)


def wait_for_heartbeat(aggregator) -> None:
    """Wait until a heartbeat that began after the call was answered."""
    before = len(aggregator.heartbeats)
    until(lambda: len(aggregator.heartbeats) >= before + 3)


def test_a_bar_that_rises_while_it_rests_shuts_it_out(
    rests: JobRunner, aggregator, add: AddJob
) -> None:
    add("a")
    rests.begin("a")
    beats = len(aggregator.heartbeats)
    aggregator.bar = PERFECT
    wait_for_heartbeat(aggregator)
    assert all(beat.lease.job_id == "a" for beat in aggregator.heartbeats[beats:])
    finish(rests)
    report = aggregator.reports["a"]
    assert report.header.stopped
    assert len(report.answers) >= 3
    assert not aggregator.failures


def test_a_lease_that_is_cancelled_while_its_job_rests_ends_it_at_its_turn(
    rests: JobRunner, aggregator, add: AddJob
) -> None:
    add("a")
    rests.begin("a")
    aggregator.cancel = True
    wait_for_cancel(rests)
    aggregator.cancel = False
    assert rests.has_parked
    finish(rests)
    assert not aggregator.reports
    assert not aggregator.failures
    add("b")
    rests.run("b")
    assert set(aggregator.reports) == {"b"}


def wait_for_cancel(runner: JobRunner) -> None:
    """Wait until a heartbeat was answered so, which ends them."""
    until(lambda: all(thread.name != "heartbeat" for thread in threading.enumerate()))
    assert runner.has_parked


@pytest.mark.parametrize(
    "changes",
    [{"experiment_id": "another"}, {"split": messages.SPLIT_HELDOUT}],
)
def test_a_job_of_another_kind_is_passed_on_and_those_that_rest_are_finished(
    rests: JobRunner, aggregator, add: AddJob, changes: dict[str, str | int]
) -> None:
    add("a")
    add("b", **changes)
    begin(rests, "ab")
    assert not rests.has_parked
    rests._background.wait()
    assert set(aggregator.reports) == {"a"}
    assert kinds(aggregator) == {"b": RELEASED}
    add("b", **changes)
    rests.run("b")
    assert set(aggregator.reports) == {"a", "b"}


def test_a_job_of_another_lineage_is_passed_on(rests: JobRunner, aggregator, add: AddJob) -> None:
    add("a")
    add("b").descriptor.lineage_digest = "another"
    begin(rests, "ab")
    rests._background.wait()
    assert set(aggregator.reports) == {"a"}
    assert kinds(aggregator) == {"b": RELEASED}


def test_one_message_keeps_all_leases(rests: JobRunner, aggregator, add: AddJob) -> None:
    for job_id in "abc":
        add(job_id)
    begin(rests, "ab")
    aggregator.said.clear()
    until(lambda: len(aggregator.said) >= 8)
    assert {tuple(jobs) for jobs in aggregator.said[1:-1]} == {("a", "b")}
    assert {beat.lease.job_id for beat in aggregator.heartbeats[-4:]} == {"a", "b"}
    aggregator.cancel = True
    wait_for_cancel(rests)
    finish(rests)
    assert not aggregator.reports


def test_closing_hands_back_what_rests(rests: JobRunner, aggregator, add: AddJob) -> None:
    add("a")
    add("b")
    begin(rests, "ab")
    rests.close()
    assert kinds(aggregator) == {"a": RELEASED, "b": RELEASED}
    assert not aggregator.reports
    assert not rests.has_parked


def test_an_aggregator_that_is_away_is_waited_for_once_for_all_that_rest(
    rests: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    for job_id in "ab":
        add(job_id)
    begin(rests, "ab")
    shutdown.request()
    aggregator.errors["FailJob"] = [UnavailableError("down")] * 2
    rests.close()
    assert aggregator.calls["FailJob"] == 1
    assert not aggregator.failures
    assert not rests.has_parked


@pytest.mark.parametrize("shutdown", [Shutdown(grace=60.0)])
def test_all_that_rests_is_handed_back_once_the_aggregator_is_there_again(
    rests: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    for job_id in "abc":
        add(job_id)
    begin(rests, "ab")
    shutdown.request()
    down, lost = UnavailableError("down"), StaleLeaseError("lost")
    aggregator.errors["FailJob"] = [down, lost, None]
    rests.close()
    assert aggregator.calls["FailJob"] == 3
    assert kinds(aggregator) == {"b": RELEASED}


def test_what_was_given_up_and_not_handed_back_yet_is_released(
    rests: JobRunner, aggregator, add: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("a")
    begin(rests, "a")
    with monkeypatch.context() as changed:
        changed.setattr(rests._client, "hand_back", hang)
        with pytest.raises(TimeoutError):
            rests.close()
    rests.release()
    assert kinds(aggregator) == {"a": RELEASED}


def hang(*_: object) -> None:
    raise TimeoutError


@pytest.mark.parametrize("shutdown", [Shutdown(grace=60.0)])
def test_a_stopping_worker_leaves_what_rests_to_others(
    rests: JobRunner, aggregator, add: AddJob, shutdown: Shutdown
) -> None:
    add("a")
    rests.begin("a")
    shutdown.request()
    rests.run("none")
    rests.continue_parked()
    assert rests.has_parked
    rests.close()
    assert kinds(aggregator) == {"a": RELEASED}


class Breaking:
    """Makes engines in which something happens after the first answer of the third job.

    Args:
        then: What happens; the engine is broken where it raises.
        aborts: Whether a broken engine lets go of its requests.
    """

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
        self._begun += len(prompts) != PROMPTS  # the replay's are no job's
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
def test_an_engine_that_fails_counts_against_the_active_job_alone(
    make_runner: MakeRunner, aggregator, add: AddJob, *, aborts: bool
) -> None:
    breaking = Breaking(broken, aborts=aborts)
    runner = make_runner(Loading(roots=(), load=breaking.load), resting=3)
    for job_id in "abc":
        add(job_id)
    begin(runner, "abc")
    assert kinds(aggregator) == {"a": RELEASED, "b": RELEASED, "c": INFRASTRUCTURE}
    assert not runner.has_parked
    assert runner.pause == 2.0
    add("d")
    runner.run("d")
    assert set(aggregator.reports) == {"d"}


def test_a_job_that_hangs_counts_and_those_that_rest_do_not(
    make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    found: list[dict[str, int]] = []

    def watch() -> None:
        runner.abandon()
        found.append(kinds(aggregator))

    runner = make_runner(Loading(roots=(), load=Breaking(watch).load), resting=3)
    for job_id in "abc":
        add(job_id)
    begin(runner, "abc")
    assert found[0] == {"a": RELEASED, "b": RELEASED, "c": INFRASTRUCTURE}


def test_the_watchdog_expects_nothing_while_all_jobs_are_parked(
    make_runner: MakeRunner, aggregator, add: AddJob
) -> None:
    watchdog = Watchdog(HANG_SECONDS)
    runner = make_runner(watchdog=watchdog, resting=3)
    add("a")
    runner.begin("a")
    assert watchdog._deadline == float("inf")
    add("b")
    runner.begin("b")
    assert watchdog._deadline == float("inf")
    finish(runner)
    assert watchdog._deadline == float("inf")
    assert set(aggregator.reports) == {"a", "b"}


def test_answers_that_cannot_be_judged_fail_the_job_that_gave_them(
    rests: JobRunner, aggregator, add: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("a")
    rests.begin("a")

    def out_of_bounds(self: AnswerJudge) -> None:
        self.rewards.append(1e9)

    with monkeypatch.context() as changed:
        changed.setattr(AnswerJudge, "collect_rewards", out_of_bounds)
        rests.continue_parked()
    assert kinds(aggregator) == {"a": messages.FAILURE_KIND_FATAL}
    assert not rests.has_parked
