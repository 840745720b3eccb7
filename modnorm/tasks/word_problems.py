"""A generator of short word problems in the style of GSM8K, each with its solution.

    python -m modnorm.tasks.word_problems OUT.jsonl --seed S --count N [--exclude FILE.jsonl ...]

writes rows of the task `gsm8k` that differ from one another and from all excluded rows.
"""

import argparse
import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("Tom", "Ann", "Ben", "Eva", "Max", "Mia", "Leo", "Zoe", "Sam", "Ivy")
THINGS = (
    "apples", "pens", "books", "coins", "cards", "eggs", "stamps", "cups", "shells", "beads",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A question and its solution, which ends with `#### n`."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Cast:
    """The names, things and numbers of a story."""

    name: str
    other: str
    things: str
    many: int
    some: int
    few: int


def _gift(c: _Cast) -> WordProblem:
    question = (
        f"{c.name} has {c.many} {c.things}. {c.other} gives {c.name} {c.some} more {c.things}. "
        f"How many {c.things} does {c.name} have now?"
    )
    return _worked(question, _step(c.many, "+", c.some))


def _loss(c: _Cast) -> WordProblem:
    total = c.many + c.some
    question = (
        f"{c.name} has {total} {c.things} and loses {c.some} of them. "
        f"How many {c.things} are left?"
    )
    return _worked(question, _step(total, "-", c.some))


def _boxes(c: _Cast) -> WordProblem:
    question = (
        f"{c.name} buys {c.few} boxes with {c.some} {c.things} in each box. "
        f"How many {c.things} does {c.name} buy?"
    )
    return _worked(question, _step(c.few, "*", c.some))


def _bags(c: _Cast) -> WordProblem:
    question = (
        f"{c.name} has {c.few} bags of {c.some} {c.things} and finds {c.many} more. "
        f"How many {c.things} does {c.name} have in total?"
    )
    return _worked(question, _step(c.few, "*", c.some), _step(c.few * c.some, "+", c.many))


def _shares(c: _Cast) -> WordProblem:
    total = c.some * c.few
    question = (
        f"{c.name} shares {total} {c.things} equally among {c.few} friends. "
        f"How many {c.things} does each friend get?"
    )
    return _worked(question, _step(total, "/", c.few))


def _together(c: _Cast) -> WordProblem:
    question = (
        f"{c.name} has {c.many} {c.things}. {c.other} has {c.some} more {c.things} than {c.name}. "
        f"How many {c.things} do they have together?"
    )
    theirs = c.many + c.some
    return _worked(question, _step(c.many, "+", c.some), _step(c.many, "+", theirs))


STORIES: tuple[Callable[[_Cast], WordProblem], ...] = (
    _gift, _loss, _boxes, _bags, _shares, _together,
)  # fmt: skip


def generate_problems(
    seed: int, count: int, *, exclude: Collection[str] = ()
) -> tuple[WordProblem, ...]:
    """Return distinct problems that cycle through the stories."""
    generator = random.Random(seed)
    problems: dict[str, WordProblem] = {}
    while len(problems) < count:
        story = STORIES[len(problems) % len(STORIES)]
        problem = story(_draw(generator))
        if problem.question not in exclude:
            problems.setdefault(problem.question, problem)
    return tuple(problems.values())


def _draw(generator: random.Random) -> _Cast:
    name, other = generator.sample(NAMES, 2)
    return _Cast(
        name=name,
        other=other,
        things=generator.choice(THINGS),
        many=generator.randint(2, 60),
        some=generator.randint(2, 30),
        few=generator.randint(2, 9),
    )


def _step(left: int, symbol: str, right: int) -> tuple[str, int]:
    results = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}
    return f"{left} {symbol} {right} = {results[symbol]}", results[symbol]


def _worked(question: str, *steps: tuple[str, int]) -> WordProblem:
    lines = [text for text, _ in steps]
    return WordProblem(question, "\n".join([*lines, f"#### {steps[-1][1]}"]))


def _read_questions(paths: Sequence[Path]) -> frozenset[str]:
    lines = (line for path in paths for line in path.read_text().splitlines())
    return frozenset(json.loads(line)["question"] for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file of problems; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m modnorm.tasks.word_problems")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--exclude", type=Path, nargs="*", default=[])
    options = parser.parse_args(arguments)
    exclude = _read_questions(options.exclude)
    problems = generate_problems(options.seed, options.count, exclude=exclude)
    rows = (json.dumps({"question": p.question, "answer": p.answer}) for p in problems)
    options.out.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
