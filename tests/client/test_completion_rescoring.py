from types import SimpleNamespace

import pytest

from modnorm.client.rescoring import rescore
from modnorm.errors import EngineError
from modnorm.sandbox import ProgramOutcome, Verdict
from modnorm.tasks import get_task

TASK = get_task("gsm8k")
ROWS = [TASK.parse({"question": "q", "answer": f"#### {n}"}) for n in ("1000", "7")]


def answer(row, completion):
    return SimpleNamespace(row=row, completion=completion)


def test_stored_completions_are_judged_by_another_scorer():
    answers = [answer(1, "so 7"), answer(0, "so 1,000"), answer(0, "no")]
    default = rescore(answers, ROWS, TASK)
    published = rescore(answers, ROWS, get_task("gsm8k", scorer="reference"))
    assert [judgement.vote for judgement in default] == ["7", "1000", None]
    assert [judgement.vote for judgement in published] == ["7", "1,000", None]
    assert [judgement.reward for judgement in published] == [1.0, 0.0, 0.0]


class Flaky:
    """A sandbox that fails so many times before it answers."""

    def __init__(self, failures):
        self.failures = failures

    def execute(self, program):
        if self.failures:
            self.failures -= 1
            raise EngineError("the sandbox failed")
        return ProgramOutcome(Verdict.PASSED, "", 1, "", 0.0, 0.0)

    def check_health(self):
        raise AssertionError("nobody asks a runner that is not used for its health")


def test_a_sandbox_that_fails_is_no_verdict_and_one_that_keeps_failing_an_error():
    def judge(failures):
        task = get_task("mbpp", sandbox=Flaky(failures))
        row = task.parse({"text": "t", "test_list": ["assert f() == 1"]})
        return rescore([answer(0, "<answer>def f(): return 1</answer>")], [row], task)

    assert [judgement.correct for judgement in judge(2)] == [True]
    with pytest.raises(EngineError):
        judge(3)
