import time
from pathlib import Path

import pytest
import yaml

from modnorm.errors import InvalidInputError
from modnorm.tasks import get_task
from modnorm.tasks.conformance import check_task
from modnorm.tasks.declared import load_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-task.yaml"
DECLARATION = yaml.safe_load(EXAMPLE.read_text())


@pytest.fixture
def declare(tmp_path):
    """Write a task file that differs from the example."""

    def declare(**changes):
        path = tmp_path / "task.yaml"
        path.write_text(yaml.safe_dump({**DECLARATION, **changes}))
        return path

    return declare


def test_the_example_is_a_task_that_conforms():
    task = get_task(str(EXAMPLE))
    rows = [
        {"country": "France", "capital": "Paris", "id": 1},
        {"country": "Peru", "capital": "Lima", "id": 2},
    ]
    check_task(task, rows, ["<answer>paris</answer>", "It is <answer> Lima </answer>."]).require()
    row = task.parse(rows[0])
    assert row == {"country": "France", "capital": "Paris"}
    system, user = task.messages(row)
    assert system.content == DECLARATION["prompt"]["system"]
    assert user.content.startswith("What is the capital of France?")
    assert (task.name, task.max_tokens) == ("capitals", 64)


def test_the_scorer_changes_with_the_declaration(declare):
    first = load_task(declare()).scorer
    assert first.startswith("capitals-")
    assert load_task(declare()).scorer == first
    assert load_task(declare(compare="exact")).scorer != first


@pytest.mark.parametrize(
    ("compare", "right", "wrong"),
    [
        ("exact", "Paris", "paris"),
        ("caseless", "pARIS", "Par is"),
        ("number", "1,000.0", "1001"),
        ("mathematics", r"\frac{2}{4}", "1/3"),
    ],
)
def test_answers_are_compared_as_declared(declare, compare, right, wrong):
    answers = {"number": "1000", "mathematics": "0.5"}
    task = load_task(declare(compare=compare))
    row = task.parse({"country": "c", "capital": answers.get(compare, "Paris")})
    assert task.judge(row, f"<answer>{right}</answer>").correct
    assert not task.judge(row, f"<answer>{wrong}</answer>").correct


def test_the_first_or_the_last_match_counts(declare):
    text = "<answer>Paris</answer><answer>Rome</answer>"
    last, first = (
        load_task(declare()),
        load_task(declare(extract={"regex": "<answer>(.*?)</", "match": "first"})),
    )
    row = last.parse({"country": "c", "capital": "Paris"})
    assert last.judge(row, text).vote == "rome"
    assert first.judge(row, text).correct


def test_numbers_in_columns_become_text(declare):
    task = load_task(declare(compare="number"))
    assert task.parse({"country": "c", "capital": 5})["capital"] == "5"


def test_a_runaway_expression_is_stopped(declare):
    task = load_task(declare(extract={"regex": "(?:a|a?)+$b"}))
    row = task.parse({"country": "c", "capital": "Paris"})
    started = time.monotonic()
    assert task.judge(row, "a" * 10_000).vote is None
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": "My Task"}, "name"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"answer": "city"}, "city used but not listed"),
        ({"prompt": {"user": "{town}"}}, "town used but not listed"),
        ({"prompt": {"user": "{country.__class__}"}}, "not listed"),
        ({"prompt": {"user": "{"}}, "format string"),
        ({"extract": {"regex": "("}}, "no regular expression"),
        ({"extract": {"regex": "(a)(b)"}}, "one group"),
        ({"compare": "fuzzy"}, "compare"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_faulty_declaration_is_refused(declare, changes, fault):
    with pytest.raises(InvalidInputError, match=fault) as caught:
        load_task(declare(**changes))
    assert caught.value.field == "task.name"


@pytest.mark.parametrize("content", ["a: [", "- 1", "", "\x00"])
def test_what_is_no_declaration_is_refused(tmp_path, content):
    path = tmp_path / "task.yaml"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"task\.yaml"):
        get_task(str(path))


def test_a_task_file_must_lie_under_the_roots(tmp_path, declare):
    path = declare()
    assert get_task(str(path), roots=[tmp_path]).name == "capitals"
    with pytest.raises(InvalidInputError, match="no file"):
        get_task(str(path), roots=[tmp_path / "other"])
    with pytest.raises(InvalidInputError, match="no file"):
        get_task("none.yaml")


@pytest.mark.parametrize(
    ("raw", "column"),
    [({"country": "c"}, "capital"), ({"country": "c", "capital": "x"}, "capital")],
)
def test_malformed_rows_name_their_column(declare, raw, column):
    with pytest.raises(InvalidInputError) as caught:
        load_task(declare(compare="number")).parse(raw)
    assert caught.value.field == column
