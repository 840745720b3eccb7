import pytest

from modnorm.errors import EngineError, InvalidInputError, PreconditionError
from modnorm.tasks import get_task

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


@pytest.mark.parametrize("index", range(4))
def test_a_broken_test_fails_the_right_program(make_task, index):
    task = make_task("mbpp")
    tests = [*ROW["test_list"]]
    tests[index] += " + 1"
    assert not task.judge(task.parse({**ROW, "test_list": tests}), completion(RIGHT)).correct


@pytest.mark.parametrize("scorer", [None, "reference"])
def test_the_set_up_code_runs_too(make_task, scorer):
    task = make_task("mbpp", scorer)
    row = task.parse({**ROW, "test_setup_code": "two = 2"})
    program = completion("def double(n):\n    return two * n")
    assert task.judge(row, program).correct
    assert not task.judge(task.parse(ROW), program).correct


def test_set_up_code_uses_the_program_and_the_published_order_forbids_it(make_task):
    row = {**ROW, "test_list": ["assert node.n == 1"], "test_setup_code": "node = Node(1)"}
    program = completion("class Node:\n    def __init__(self, n):\n        self.n = n")
    right, published = make_task("mbpp"), make_task("mbpp", "reference")
    assert right.judge(right.parse(row), program).correct
    assert not published.judge(published.parse(row), program).correct


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


def test_the_metric_is_accuracy(make_task):
    task = make_task("mbpp")
    assert task.metric([task.parse(ROW)] * 4, [True, False, False, True]) == 0.5


@pytest.mark.parametrize("text", ["", "no code", "<answer></answer>", "<answer>def (</answer>"])
def test_no_program_is_no_vote(make_task, text):
    task = make_task("mbpp")
    judgement = task.judge(task.parse(ROW), text)
    assert (judgement.reward, judgement.vote, judgement.correct) == (0.0, None, False)


def test_a_failure_of_the_sandbox_is_no_score():
    class Broken:
        def check_health(self):
            raise AssertionError("a judgement measures nothing")

        def execute(self, program):
            raise EngineError("the zygote died")

    task = get_task("mbpp", sandbox=Broken())
    with pytest.raises(EngineError, match="zygote"):
        task.judge(task.parse(ROW), completion(RIGHT))


def test_without_a_sandbox_there_are_prompts_but_no_judgements():
    task = get_task("mbpp")
    row = task.parse(ROW)
    assert task.messages(row)
    with pytest.raises(PreconditionError) as caught:
        task.judge(row, completion(RIGHT))
    assert caught.value.field == "task.name"


@pytest.mark.parametrize(
    ("raw", "column"),
    [
        ({**ROW, "text": ""}, "text"),
        ({**ROW, "test_list": []}, "test_list"),
        ({**ROW, "test_list": [1]}, "test_list"),
        ({**ROW, "test_setup_code": 3}, "test_setup_code"),
    ],
)
def test_malformed_rows_name_their_column(make_task, raw, column):
    with pytest.raises(InvalidInputError) as caught:
        make_task("mbpp").parse(raw)
    assert caught.value.field == column
