"""Questions without right answers, and their votes."""

import json
import os
from pathlib import Path
from threading import Thread

import pytest

from modnorm.errors import InvalidInputError
from modnorm.tasks import get_task
from modnorm.tasks.declared_task import declared_task
from modnorm.tasks.protocol import Judgement
from modnorm.tasks.row_loading import (
    UnmarkedTask,
    parse_question,
    prompt_question,
    read_questions,
    vote_key,
)
from tests.faults import error_at
from tests.tasks.test_conformance import EXAMPLES

GOLD = {
    "countdown": (),
    "gsm8k": ("answer",),
    "math500": ("answer",),
    "mbpp": (),
    "olympiadbench": ("final_answer",),
    "rocstories": ("gold_order",),
    "uspto50k": ("class",),
}
DECLARATION = """
name: capitals
max_tokens: 32
columns: [country, capital]
prompt: {user: "The capital of {country}?"}
answer: capital
extract: {regex: "Answer: (.*)"}
compare: caseless
"""


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", GOLD)
def test_a_question_has_the_prompt_and_the_vote_of_its_row(make_task, name, scorer):
    task = make_task(name, scorer)
    for raw, reference in EXAMPLES[name]:
        row = task.parse(raw)
        asked = {column: value for column, value in raw.items() if column not in GOLD[name]}
        question = parse_question(task, asked, "line 1")
        assert not set(GOLD[name]) & question.keys()
        assert task.messages(question) == task.messages(row)
        for completion in (reference, "no answer at all", ""):
            vote = task.judge(row, completion).vote
            assert vote_key(task, question, completion) == vote
            unmarked = UnmarkedTask(task)
            assert unmarked.judge(question, completion) == Judgement(0.0, vote, correct=False)
            assert unmarked.messages(unmarked.parse(asked)) == task.messages(row)


def test_a_declared_task_needs_the_columns_of_its_prompt():
    task = declared_task(DECLARATION, source="text", field="task")
    question = parse_question(task, {"country": "Peru"}, "line 1")
    assert question == {"country": "Peru"}
    assert vote_key(task, question, "Answer: LIMA") == "lima"
    with pytest.raises(InvalidInputError, match="line 1, column 'country'"):
        parse_question(task, {"capital": "Lima"}, "line 1")


class NeedsGold:
    """A task of another package, which knows no questions."""

    def __init__(self):
        self._task = get_task("gsm8k")
        self.name, self.parse, self.judge = "mine", self._task.parse, self._task.judge


@pytest.fixture
def whole_row_task():
    return NeedsGold()


def test_a_task_that_knows_no_questions_takes_whole_rows(whole_row_task):
    task = whole_row_task
    row = parse_question(task, {"question": "q", "answer": "#### 7"}, "line 1")
    assert vote_key(task, row, "#### 8") == "8"
    with pytest.raises(InvalidInputError, match="column 'answer'"):
        parse_question(task, {"question": "q"}, "line 1")


def test_votes_on_a_prompt_know_what_they_need_of_the_question(whole_row_task):
    countdown = get_task("countdown")
    row = countdown.parse({"numbers": [44, 19, 35], "target": "98"})
    prompt = countdown.messages(row)[-1].content
    assert prompt_question(countdown, prompt) == row
    assert prompt_question(get_task("math500"), "4 + 4?") == {}
    assert prompt_question(get_task("olympiadbench"), "n?") == {"is_multiple_answer": False}
    with pytest.raises(InvalidInputError, match="numbers and the target"):
        prompt_question(countdown, "Using the numbers [], create")
    with pytest.raises(InvalidInputError, match="whole row"):
        prompt_question(whole_row_task, prompt)


def test_a_prompt_tells_the_unit_of_the_vote_as_its_row_does():
    task = get_task("gsm8k")
    row = task.parse({"question": "How many dozen eggs are left?", "answer": "4"})
    asked = prompt_question(task, task.messages(row)[-1].content)
    for completion in ("#### 4 dozen", "4 dozen eggs are left", "#### 4"):
        assert vote_key(task, asked, completion) == task.judge(row, completion).vote == "4"
    assert vote_key(task, prompt_question(task, "How many eggs?"), "#### 4 dozen") == "48"


def test_a_bad_row_is_named_by_file_line_and_column(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"question": "q"}) + "\n\n" + json.dumps({"problem": "p"}) + "\n")
    task = get_task("gsm8k")
    with error_at("input") as caught:
        list(read_questions(task, path))
    assert f"{path}, line 3, column 'question'" in caught.value.message
    with pytest.raises(InvalidInputError, match="does not exist"):
        list(read_questions(task, tmp_path / "absent.jsonl"))
    with pytest.raises(InvalidInputError, match="is a directory"):
        list(read_questions(task, tmp_path))
    with pytest.raises(InvalidInputError, match="/dev/null is no file"):
        list(read_questions(task, Path("/dev/null")))
    (tmp_path / "questions.txt").touch()
    with error_at("input", "cannot tell the format"):
        list(read_questions(task, tmp_path / "questions.txt"))


def test_a_pipe_holds_json_lines(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines = json.dumps({"question": "q"}) + "\n" + json.dumps({"problem": "p"}) + "\n"
    writer = Thread(target=path.write_text, args=(lines,))
    writer.start()
    questions = read_questions(get_task("gsm8k"), path)
    assert next(questions) == (f"{path}, line 1", {"question": "q"})
    with pytest.raises(InvalidInputError, match=f"{path}, line 2, column 'question'"):
        next(questions)
    writer.join()
