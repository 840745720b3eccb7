"""Jobs of a task that runs programs, on workers with and without a sandbox."""

import json
import time
from typing import NoReturn

import pytest

from modnorm.errors import UnavailableError
from modnorm.sandbox import Isolation, Sandbox
from modnorm.services.evaluator.job_inputs import SandboxAccess
from modnorm.tasks import get_task
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import unpack_answers
from tests.services.evaluator.run_job import run_job

ROW = {"text": "Write f.", "test_list": ["assert f(1) == 2"], "test_setup_code": ""}


@pytest.fixture
def sandbox():
    with Sandbox() as made:
        yield made


@pytest.fixture
def add_program_job(aggregator, add_job):
    program = {"task": "mbpp", "scorer": get_task("mbpp").scorer}
    digest = aggregator.keep_rows([json.dumps(ROW)])
    return lambda: add_job(**program, rows_digest=digest, max_tokens=4)


def test_without_a_sandbox_the_job_is_released_before_any_work(
    runner, aggregator, add_program_job
):
    run_job(runner, add_program_job())
    failure = aggregator.failures["a"]
    assert failure.kind == messages.FAILURE_KIND_RELEASED
    assert "MODNORM_SANDBOX_TARGET" in failure.reason
    assert "a" not in aggregator.reports
    assert "FetchArtifact" not in aggregator.calls


def test_the_report_contains_the_isolation_of_programs(
    make_runner, sandbox, aggregator, add_program_job
):
    runner = make_runner(sandbox=sandbox)
    run_job(runner, add_program_job())
    report = aggregator.reports["a"]
    assert report.environment["sandbox"] == sandbox.measure().summary
    assert [answer.row for answer in unpack_answers(report.answers)] == [0]


def test_a_failed_sandbox_is_not_checked_for_each_job(sandbox, monkeypatch):
    looks: list[UnavailableError | Isolation] = []
    answers = (
        UnavailableError("its host is down"),
        UnavailableError("still away"),
        sandbox.measure(),
    )

    class Failing:
        execute = sandbox.execute

        @staticmethod
        def check_health():
            answer = answers[len(looks)]
            looks.append(answer)
            if isinstance(answer, UnavailableError):
                raise answer
            return answer

    programs = SandboxAccess(Failing())
    for _ in range(3):
        with pytest.raises(UnavailableError, match="host is down"):
            programs.check_health()
    assert len(looks) == 1
    monkeypatch.setattr("modnorm.services.evaluator.job_inputs.FAULT_SECONDS", 0.0)
    programs = SandboxAccess(Failing())
    with pytest.raises(UnavailableError, match="still away"):
        programs.check_health()
    time.sleep(0.01)  # longer than the check took
    assert programs.check_health().summary == sandbox.measure().summary


def test_a_sandbox_that_failed_at_a_program_is_checked_before_the_next_job(sandbox):
    """Otherwise jobs would lose attempts while the cached check is valid."""
    gone = UnavailableError("its host is down")

    class Mortal:
        is_there = True

        def execute(self, program):
            return sandbox.execute(program) if self.is_there else _raised(gone)

        def check_health(self):
            return sandbox.measure() if self.is_there else _raised(gone)

    mortal = Mortal()
    programs = SandboxAccess(mortal)
    task = get_task("mbpp", sandbox=programs)
    answer = "<answer>def f(x): return x + 1</answer>"
    programs.check_health()
    assert task.judge(ROW, answer).correct
    mortal.is_there = False
    programs.check_health()
    with pytest.raises(UnavailableError):
        task.judge(ROW, answer)
    with pytest.raises(UnavailableError):
        programs.check_health()


def _raised(error: Exception) -> NoReturn:
    raise error
