import json

import pytest

from modnorm.errors import PreconditionError
from modnorm.spec import DataSpec
from modnorm.tasks import check_sandbox, get_task
from modnorm.tasks.row_loading import load_data
from tests.faults import error_at

ROW = {
    "text": "Write a function to double a number.",
    "test_list": [f"assert double({n}) == {2 * n}" for n in range(4)],
    "test_setup_code": "",
}
RIGHT = "def double(n):\n    return 2 * n"


def completion(program):
    return f"<think>so</think>\n<answer>\n{program}\n</answer>"


@pytest.mark.parametrize("scorer", [None, "reference"])
def test_all_stored_tests_must_pass(make_task, scorer):
    task = make_task("mbpp", scorer)
    row = task.parse(ROW)
    right = task.judge(row, completion(RIGHT))
    assert (right.reward, right.correct) == (1.0, True)
    # Right on the three tests that the prompt shows, wrong on the fourth.
    shown = task.judge(row, completion("def double(n):\n    return 2 * n if n < 3 else 0"))
    assert (shown.reward, shown.correct) == (0.0, False)
    assert shown.vote is not None


def test_set_up_code_uses_the_program_and_the_published_order_forbids_it(make_task):
    row = {**ROW, "test_list": ["assert node.n == 1"], "test_setup_code": "node = Node(1)"}
    program = completion("class Node:\n    def __init__(self, n):\n        self.n = n")
    right, published = make_task("mbpp"), make_task("mbpp", "reference")
    assert right.judge(right.parse(row), program).correct
    assert not published.judge(published.parse(row), program).correct


UNJUDGED = "for x in (1, 2):\n    assert double(x) == 2 * x"


@pytest.mark.parametrize("scorer", [None, "reference"])
def test_a_row_whose_tests_cannot_be_judged_is_refused(make_task, scorer, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [ROW, {**ROW, "test_list": ["assert double(1) == 2", UNJUDGED]}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = make_task("mbpp", scorer)
    with error_at("task.heldout") as caught:
        load_data(task, DataSpec(source=str(path)), field="task.heldout")
    assert caught.value.message == (
        f"{path}, line 2, column 'test_list': tests[1]: not a comparison of calls "
        "with constants: for x in (1, 2): assert double(x) == 2 * x"
    )
    assert "assert CALL == VALUE" in (caught.value.remedy or "")


def test_a_row_whose_tests_are_no_python_is_refused(make_task):
    with error_at("test_list", "not Python"):
        make_task("mbpp").parse({**ROW, "test_list": ["assert ("]})


def test_equal_programs_are_one_vote_and_the_published_scorer_splits_it(make_task):
    spellings = [
        RIGHT,
        "def double(n):\n  return (2*n)  # twice",
        'def double(n):\n    """Double."""\n\n    return 2 * n',
        f"```python\n{RIGHT}\n```",
    ]
    row = make_task("mbpp").parse(ROW)
    votes = {make_task("mbpp").judge(row, completion(text)).vote for text in spellings}
    published = make_task("mbpp", "reference")
    assert votes == {RIGHT}
    assert len({published.judge(row, completion(text)).vote for text in spellings}) == 4


def test_without_a_sandbox_there_are_prompts_but_no_judgements():
    task = get_task("mbpp")
    row = task.parse(ROW)
    assert task.messages(row)
    with error_at("task.name", kind=PreconditionError):
        task.judge(row, completion(RIGHT))
    with error_at("task.name", "no sandbox", kind=PreconditionError) as caught:
        check_sandbox("mbpp", None)
    assert "sandbox service" in str(caught.value)
