"""Countdown: reach a target with every number used exactly once.

Scorer `countdown-v2` (paper, table "Task-specific data, generation, and scoring protocol": legal
answer + format bonus). `modnorm.tasks.countdown_equation` says which answers are legal.

Scorer `countdown-v1`, the former default, votes on expressions in plain characters only.

Scorer `countdown-reference-v1` gives the published scores. `**` and `//` are legal. A newline
before the expression inside its tag costs the reward but not the vote. A number over 1,000 costs
the vote but not the reward. Expressions and values are bounded; the published code hangs on
`44**19**35`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.arithmetic import BASIC, PYTHON, Grammar, Number, evaluate
from modnorm.tasks.countdown_equation import TOLERANCE, answer_value, uses
from modnorm.tasks.protocol import Judgement, Message, RewardBounds, Row
from modnorm.tasks.single_answer import accuracy
from modnorm.tasks.tags import last_answer, stated_answer

SYSTEM = (
    "You are a helpful assistant. You first think about the reasoning process in your mind and "
    "then provide the user with the answer."
)
USER = (
    "Using the numbers {numbers}, create an equation that equals {target}. You can use basic "
    "arithmetic operations (+, -, *, /) and each number can only be used once. Show your work in "
    "<think> </think> tags. And return the final answer in <answer> </answer> tags, for example "
    "<answer> (1 + 2) / 3 </answer>."
)

MAX_NUMBER = 10**9
"""Largest number and largest absolute target of a row."""

_INTEGER_TOLERANCE = 1e-9
_LARGEST_VOTED_LITERAL = 1000
_PROMPT = re.compile(
    r"Using the numbers \[(?P<numbers>\d{1,10}(?:, \d{1,10}){0,63})\], "
    r"create an equation that equals (?P<target>-?\d{1,20}(?:\.\d{1,20})?)\. "
)


class Countdown:
    """The Countdown task; rows are `{"numbers": [44, 19, 35], "target": 98}`."""

    name = "countdown"
    scorer = "countdown-v2"
    max_tokens = 1024
    reward_bounds = RewardBounds(0.0, 0.1 + 1.0)

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the columns `numbers` and `target` (a number or its decimal text); drop the rest.

        Raises:
            InvalidInputError: a column is missing or malformed.
        """
        listed = columns.listed(raw, "numbers")
        numbers = list(map(columns.whole, listed)) if isinstance(listed, list) else []
        if not numbers or not all(map(_is_number, numbers)):
            raise InvalidInputError(
                f"must be a list of integers from 0 to {MAX_NUMBER}", field="numbers"
            )
        return {"numbers": numbers, "target": _target(raw.get("target"))}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns of `parse`: the target is part of the question."""
        return self.parse(raw)

    def read_prompt(self, prompt: str) -> Row:
        """Return the numbers and the target that a prompt of `messages` names.

        Raises:
            InvalidInputError: the text is no such prompt.
        """
        found = _PROMPT.search(prompt)
        if found is None:
            raise InvalidInputError(
                "a vote on Countdown needs the numbers and the target",
                field="row",
                remedy="begin the prompt as the task does, or give the row",
            )
        numbers = [int(number) for number in found["numbers"].split(", ")]
        return self.parse({"numbers": numbers, "target": found["target"]})

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the paper's prompt (app. "Prompt Templates")."""
        target = columns.number_text(_target_of(row))
        text = USER.format(numbers=_numbers(row), target=target)
        return Message("system", SYSTEM), Message("user", text)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward = 0.1 * format + answer."""
        vote = self.vote(row, completion)
        answer = self._answers(row, completion)
        return Judgement(0.1 * format_score(completion) + answer, vote, _hits(row, vote))

    def gold(self, row: Row) -> str:
        """Return the target."""
        return columns.number_text(_target_of(row))

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Numeric-answer accuracy."""
        return accuracy(rows, correct)

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion."""
        return vote_key(answer_value(stated_answer(completion) or "", _numbers(row)))

    def _answers(self, row: Row, completion: str) -> bool:
        """Whether the completion's answer is legal and equals the target."""
        return _hits(row, self.vote(row, completion))


class CountdownExpressions(Countdown):
    """Countdown of the former default, which reads expressions in plain characters only."""

    scorer = "countdown-v1"

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion."""
        expression = (stated_answer(completion) or "").strip()
        return vote_key(_plain_value(expression, _numbers(row), BASIC))


class PublishedCountdown(Countdown):
    """Countdown scored as the published code does, quirks included."""

    scorer = "countdown-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion."""
        numbers = _numbers(row)
        if max(numbers) > _LARGEST_VOTED_LITERAL:
            return None
        return vote_key(_plain_value((last_answer(completion) or "").strip(), numbers, PYTHON))

    def _answers(self, row: Row, completion: str) -> bool:
        """Whether the answer, without one final newline, is legal and equals the target."""
        expression = (last_answer(completion) or "").removesuffix("\n")
        value = _plain_value(expression, _numbers(row), PYTHON)
        return value is not None and abs(value - _target_of(row)) < TOLERANCE


def format_score(completion: str) -> float:
    """Return the format score of a completion, whose <think> tag counts as opened by the prompt.

    The score is 1 if the text is a think block, a newline and an answer block; one final newline
    may follow. Otherwise a think block scores 0.1 and an answer block 0.5.
    """
    joint = "</think>\n<answer>"
    start = completion.find(joint)
    if start >= 0 and completion.removesuffix("\n").endswith("</answer>", start + len(joint)):
        return 1.0
    thinks = "</think>" in completion
    answers = last_answer(completion) is not None
    return 0.1 * thinks + 0.5 * answers


def vote_key(value: Number | None) -> str | None:
    """Return a value as text: an integer's digits, else the float; None without a value."""
    if value is None:
        return None
    nearest = round(value)
    return str(nearest) if abs(value - nearest) < _INTEGER_TOLERANCE else str(float(value))


def _plain_value(expression: str, numbers: Sequence[int], grammar: Grammar) -> Number | None:
    return evaluate(expression, grammar) if uses(expression, numbers) else None


def _hits(row: Row, vote: str | None) -> bool:
    """Whether the voted value is the target, within 1e-5."""
    return vote is not None and abs(float(vote) - _target_of(row)) < TOLERANCE


def _numbers(row: Row) -> list[int]:
    return cast("list[int]", row["numbers"])


def _target_of(row: Row) -> Number:
    return cast("Number", row["target"])


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def _target(value: object) -> Number:
    value = columns.number(value)
    if type(value) not in {int, float} or not abs(cast("Number", value)) <= MAX_NUMBER:
        raise InvalidInputError(
            f"must be a number of at most {MAX_NUMBER} in absolute value", field="target"
        )
    return cast("Number", value)
