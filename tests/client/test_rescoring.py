from dataclasses import replace
from types import SimpleNamespace

import pytest

from modnorm.analysis.parquet_files import read_answers, write_answers
from modnorm.analysis.run import load_run
from modnorm.client.rescoring import rescore, rescore_run
from modnorm.errors import EngineError
from modnorm.sandbox import ProgramOutcome, Verdict
from modnorm.tasks import get_task
from tests.faults import error_at


@pytest.fixture
def run(gsm8k_stored):
    return load_run(gsm8k_stored)


@pytest.fixture
def reference(run):
    return rescore_run(run, get_task("gsm8k", scorer="reference"))


def test_another_scorer_judges_every_completion_anew(reference):
    assert (reference["old_scorer"], reference["new_scorer"]) == ("gsm8k-v3", "gsm8k-reference-v1")
    assert reference["selection"] == {"total": 8, "changed": 2}
    assert reference["heldout"] == {"total": 6, "changed": 1}
    models = reference["candidates"]
    assert [each["selection_reward"]["new"] for each in models] == [0.0, 0.5, 0.5, None]
    assert [each["heldout_metric"]["new"] for each in models] == [0.5, 0.5, None, None]
    assert reference["base"]["heldout_metric"] == {"old": 0.5, "new": 0.5}
    assert [each["changed_selection"] for each in models] == [2, 0, 0, 0]
    assert [each["changed_heldout"] for each in models] == [1, 0, 0, 0]


def test_experts_vote_as_selected_and_as_selected_anew(reference):
    ensembles = reference["ensembles"]
    places = [(each["population"], each["ensemble_size"]) for each in ensembles]
    assert places == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert all(each["metric"] == {"old": 1.0, "new": 0.5} for each in ensembles)
    anew = [each["reselected"] for each in ensembles]
    assert [each["experts"] for each in anew] == [[1], [1, 0], [1], [1, 2]]
    assert [each["metric"] for each in anew] == [0.5, 0.5, 0.5, None]
    assert [each["missing"] for each in anew] == [[], [], [], [2]]
    assert (reference["rank_1"]["index"], reference["rank_1"]["reselected"]) == (0, 1)


def test_a_tie_goes_to_the_best_ranked_expert_by_the_scorer_that_selects(gsm8k_stored):
    last = (1, "heldout", 1)
    answers = [
        replace(each, completion="so 7", vote="7", correct=True)
        if (each.candidate, each.split, each.row) == last
        else each
        for each in read_answers(gsm8k_stored)
    ]
    write_answers(gsm8k_stored, answers)
    reference = rescore_run(load_run(gsm8k_stored), get_task("gsm8k", scorer="reference"))
    tied, found = reference["ensembles"][1], reference["ensembles"][1]["reselected"]
    assert (tied["experts"], tied["metric"]["new"], tied["correct"]["new"]) == ([0, 1], 0.5, 1)
    assert (found["experts"], found["metric"], found["correct"]) == ([1, 0], 1.0, 2)


def test_progress_ends_at_its_total_although_a_candidate_failed(run):
    told = []
    task = get_task("gsm8k", scorer="reference")
    rescore_run(run, task, on_progress=lambda *one: told.append(one))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_rows_of_another_task_are_refused(run):
    with error_at("task.name", "'numbers'"):
        rescore_run(run, get_task("countdown"))


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
