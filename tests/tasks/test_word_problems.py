import json
import re
from collections.abc import Callable

import pytest

from modnorm.tasks import get_task, word_problems
from modnorm.tasks.sources import BUNDLED

# Each story by its typical words, with the answer in terms of its numbers.
STORIES: list[tuple[str, Callable[..., int]]] = [
    (r"has (\d+) .* gives \w+ (\d+) more", lambda a, b: a + b),
    (r"has (\d+) \w+ and loses (\d+) of them", lambda a, b: a - b),
    (r"buys (\d+) boxes with (\d+) \w+ in each", lambda a, b: a * b),
    (r"has (\d+) bags of (\d+) \w+ and finds (\d+) more", lambda a, b, c: a * b + c),
    (r"shares (\d+) \w+ equally among (\d+) friends", lambda a, b: a // b),
    (r"has (\d+) .* has (\d+) more .* together", lambda a, b: a + (a + b)),
]
SETS = ("word-problems-selection", "word-problems-heldout")


def rows_of(name):
    return [json.loads(line) for line in (BUNDLED / f"{name}.jsonl").read_text().splitlines()]


def expected(question: str) -> int:
    answers = [
        rule(*map(int, match.groups()))
        for pattern, rule in STORIES
        if (match := re.search(pattern, question))
    ]
    assert len(answers) == 1, question
    return answers[0]


@pytest.mark.parametrize("name", SETS)
def test_every_stored_answer_follows_from_the_numbers(name):
    rows = rows_of(name)
    assert len(rows) == 60
    for row in rows:
        parsed = get_task("gsm8k").parse(row)
        assert parsed["answer"] == str(expected(row["question"]))


@pytest.mark.parametrize("name", SETS)
def test_every_worked_step_is_right(name):
    for row in rows_of(name):
        for step in row["answer"].splitlines()[:-1]:
            match = re.fullmatch(r"(\d+) (.) (\d+) = (\d+)", step)
            assert match is not None
            left, symbol, right, result = match.groups()
            a, b = int(left), int(right)
            value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol]
            assert value == int(result)


def test_the_bundled_files_equal_their_commands_output(tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    word_problems.main([str(first), "--seed", "1", "--count", "60"])
    word_problems.main([str(second), "--seed", "2", "--count", "60", "--exclude", str(first)])
    for made, name in zip((first, second), SETS, strict=True):
        assert made.read_bytes() == (BUNDLED / f"{name}.jsonl").read_bytes()
