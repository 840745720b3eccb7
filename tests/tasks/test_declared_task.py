from pathlib import Path

import pytest
import yaml

from modnorm.errors import InvalidInputError
from modnorm.spec import MAX_DECLARATION, parse_spec
from modnorm.tasks import get_task
from modnorm.tasks.conformance import check_task
from modnorm.tasks.declared_task import MAX_ANSWER, SEARCHED, carry_declaration, load_task
from modnorm.tasks.registry import get_stored_task
from tests.faults import error_at

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


@pytest.mark.parametrize("column", ["question.text", "question[0]", "0", "two words"])
def test_a_prompt_names_columns_of_any_name(declare, column):
    path = declare(columns=[column, "capital"], prompt={"user": f"Q: {{{column}}} {{{{a}}}}"})
    task = load_task(path)
    (user,) = task.messages(task.parse({column: "where {b}?", "capital": "Paris"}))
    assert user.content == "Q: where {b}? {a}"


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
        ("number", "$1{,}000 (10 at $100 each)", "1,000 or 7"),
        ("mathematics", r"\frac{2}{4}", "1/3"),
    ],
)
def test_answers_are_compared_as_declared(declare, compare, right, wrong):
    answers = {"number": "1000", "mathematics": "0.5"}
    task = load_task(declare(compare=compare))
    row = task.parse({"country": "c", "capital": answers.get(compare, "Paris")})
    assert task.judge(row, f"<answer>{right}</answer>").correct
    assert not task.judge(row, f"<answer>{wrong}</answer>").correct


def test_a_right_answer_that_is_too_long_to_extract_is_refused(declare):
    row = {"country": "c", "capital": "b" * MAX_ANSWER}
    task = load_task(declare(compare="exact"))
    assert task.judge(task.parse(row), f"<answer>{row['capital']}</answer>").correct
    with error_at("capital", "more than 1,000 characters"):
        task.parse({**row, "capital": "b" * (MAX_ANSWER + 1)})


def test_the_first_or_the_last_match_counts(declare):
    text = "<answer>Paris</answer><answer>Rome</answer>"
    last, first = (
        load_task(declare()),
        load_task(declare(extract={"regex": "<answer>(.*?)</", "match": "first"})),
    )
    row = last.parse({"country": "c", "capital": "Paris"})
    assert last.judge(row, text).vote == "rome"
    assert first.judge(row, text).correct


@pytest.mark.parametrize("regex", ["[0-9]*", r"\b([0-9]*)\b", "(?s).*"])
@pytest.mark.parametrize("match", ["first", "last"])
def test_an_empty_match_is_no_answer(declare, regex, match):
    task = load_task(declare(extract={"regex": regex, "match": match}, compare="number"))
    row = task.parse({"country": "c", "capital": "12"})
    assert task.judge(row, "it is 12, my friend").correct
    assert task.judge(row, "it is not known").vote is None


def test_the_last_answer_counts_although_its_group_is_empty(declare):
    task = load_task(declare())
    row = task.parse({"country": "c", "capital": "Paris"})
    assert task.judge(row, "<answer>Paris</answer><answer></answer>").vote is None


def test_expressions_take_linear_time(declare):
    # Backtracking would take some 2**10000 steps, and a bound in seconds would then be a score.
    task = load_task(declare(extract={"regex": "(?:a|a?)+!|=(.)"}, compare="exact"))
    row = task.parse({"country": "c", "capital": "b"})
    assert task.judge(row, "a" * 10_000 + "=b").correct
    assert task.judge(row, "a" * 10_000 + "b\ud800").vote is None


@pytest.mark.parametrize(("match", "seen"), [("first", "near the start"), ("last", "at the end")])
def test_a_long_completion_is_searched_at_the_relevant_end(declare, match, seen):
    task = load_task(declare(extract={"regex": "<answer>(.*?)</answer>", "match": match}))
    row = task.parse({"country": "c", "capital": seen})
    sides = [
        f"<answer>{'near the start'}</answer>",
        "." * SEARCHED,
        f"<answer>{'at the end'}</answer>",
    ]
    assert task.judge(row, "".join(sides)).correct
    middle = [sides[1], "<answer>of neither</answer>", sides[1]]
    assert task.judge(row, "".join(middle)).vote is None


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": "My Task"}, "name: 'My Task' must be up to 64 of a-z"),
        ({"answer": "city"}, "answer: 'city' is not one of the columns: 'country', 'capital'"),
        ({"prompt": {"user": "{town}"}}, "prompt.user: 'town' is not one of the columns"),
        ({"prompt": {"user": "{"}}, "prompt.user: Single '{' encountered in format string; write"),
        ({"prompt": {"user": "{}"}}, "names no column"),
        ({"name": "a" * 1000}, "name: 'aa.{,60}[.]{3} must be up to 64"),
        ({"extract": {"regex": ""}}, "extract.regex: must not be empty"),
        ({"extract": {"regex": "("}}, "no regular expression"),
        ({"extract": {"regex": "(a)(b)"}}, "one group"),
        ({"extract": {"regex": r"(a)\1"}}, "no back-references"),
        ({"prompt": {"user": "{country:>999999999}"}}, "without ! or :"),
        ({"prompt": {"user": "{country!r}"}}, "without ! or :"),
        ({"name": "countdown"}, "task of the paper"),
        ({"max_tokens": True}, "max_tokens: must be a number, not true or false"),
    ],
)
def test_a_faulty_declaration_is_refused(declare, changes, fault):
    with error_at("task.name", fault):
        load_task(declare(**changes))


@pytest.mark.parametrize(
    "content",
    [
        "a: [",
        "- 1",
        "",
        "\x00",
        "[" * 20_000,
        "a: " + "9" * 5000,
        "a: 2026-13-45",
        "a: &a [1]\nb: *a",
        "name: a\nname: b",
        'name: a\nprompt:\n\tuser: "b"',
        "#" * (MAX_DECLARATION + 1),
    ],
)
def test_an_invalid_declaration_is_refused(tmp_path, content):
    path = tmp_path / "task.yaml"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"task\.yaml.*") as caught:
        get_task(str(path))
    assert "\n" not in str(caught.value)


def test_a_task_works_from_its_text_without_a_file(declare):
    path = declare()
    task = get_task(str(path))
    text = path.read_text()
    path.unlink()
    stored = get_stored_task("capitals", scorer=task.scorer, declaration=text)
    assert (stored.name, stored.scorer) == (task.name, task.scorer)
    for name, field in (("towns", "task.name"), ("countdown", "task.name")):
        with error_at(field):
            get_stored_task(name, declaration=text)
    with error_at("task.declaration"):
        get_stored_task("capitals", declaration=text.replace("capitals", "gsm8k"))


def test_a_service_reads_no_task_file(declare):
    with pytest.raises(InvalidInputError, match=r"text of .* is missing"):
        get_stored_task(str(declare()))
    with pytest.raises(InvalidInputError, match="no file"):
        get_task("none.yaml")


def test_a_spec_carries_the_text_of_its_task_file(declare):
    path = declare()
    task = {"name": str(path), "selection": "a.jsonl", "heldout": "b.jsonl"}
    content = {
        "model": "tiny-thicket",
        "task": task,
        "method": {"name": "randopt", "radius": 0.1},
        "population": {"size": 1},
    }
    spec = carry_declaration(parse_spec(content))
    assert (spec.task.name, spec.task.declaration) == ("capitals", path.read_text())
    path.unlink()
    assert carry_declaration(spec) == spec
    assert parse_spec(spec.model_dump(mode="json")) == spec
    registered = parse_spec({**content, "task": {**task, "name": "gsm8k"}})
    assert carry_declaration(registered) is registered
    assert "declaration" not in registered.model_dump()["task"]
