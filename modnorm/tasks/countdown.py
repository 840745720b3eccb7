r"""Countdown: reach a target with every number used exactly once.

Scorer `countdown-v2` (paper, table "Task-specific data, generation, and scoring protocol": legal
answer + format bonus). An answer is an expression or an equation. It counts if one
side uses exactly the row's numbers and every other side has the same value: `44 + 19 + 35`,
`44 + 19 + 35 = 98`, `44 + 19 + 35 = 63 + 35 = 98`. The prompt asks for an equation, so a result
beside the expression costs nothing. A false equation is no answer. Notation does not matter:
`\times`, `x`, `\frac{44}{19}`, Unicode signs, all brackets, `$...$`, `\boxed{...}`, bold. Words
and names, as in `x = 44 + 19`, have no value.

Scorer `countdown-reference-v1` gives the published scores. `**` and `//` are legal. A newline
before the expression inside its tag costs the reward but not the vote. A number over 1,000 costs
the vote but not the reward. Expressions and values are bounded; the published code hangs on
`44**19**35`.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.columns import AnswerTask, last_answer, stated_answer
from modnorm.tasks.mathematics.notation import plain_notation
from modnorm.tasks.protocol import Judgement, Message, Row

MAX_EXPRESSION = 4096
"""Longest legal expression in characters."""

MAX_BITS = 16_384
"""Largest integer power in bits; Python refuses to print integers of so many digits."""

Number = int | float

_MAX_DEPTH = 200
"""Levels of nesting; a deeper expression has no value."""
_LEGAL = re.compile(r"[0-9+\-*/() ]+")
_LITERAL = re.compile(r"[0-9]+")
_SIGNS: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

Operators = Mapping[type[ast.operator], Callable[[Number, Number], Number]]
"""Binary operators by their class in Python's syntax trees."""


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent > 0
    if whole and abs(base) > 1 and int(base).bit_length() * exponent > MAX_BITS:
        raise OverflowError("power")
    value = base**exponent
    if isinstance(value, complex):
        raise ArithmeticError("no real power")  # noqa: TRY004 - no value, not a wrong type
    return value


BASIC: Operators = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
PYTHON: Operators = {**BASIC, ast.FloorDiv: operator.floordiv, ast.Pow: _power}


def has_legal_characters(expression: str) -> bool:
    """Whether a text has only ASCII digits, `+ - * / ( )` and spaces, and is not too long."""
    return len(expression) <= MAX_EXPRESSION and _LEGAL.fullmatch(expression) is not None


def literals(expression: str) -> list[int]:
    """Return the integer literals of a legal expression, in order."""
    return [int(text) for text in _LITERAL.findall(expression)]


def evaluate(expression: str, operators: Operators = BASIC) -> Number | None:
    """Return the finite value of an expression; None if it is illegal or has no value.

    Illegal are other operators, implicit products, empty parentheses and literals such as `007`,
    as in Python. Division by zero, overflow and more than 200 nested levels give no value.
    """
    if not has_legal_characters(expression):
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        value = _value(tree, operators, _MAX_DEPTH)
        return value if math.isfinite(value) else None
    except (SyntaxError, ArithmeticError, LookupError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, operators: Operators, depth: int) -> Number:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.UnaryOp(op=sign, operand=operand) if depth:
            return _SIGNS[type(sign)](_value(operand, operators, depth - 1))
        case ast.BinOp(left=left, op=symbol, right=right) if depth:
            sides = (_value(side, operators, depth - 1) for side in (left, right))
            return operators[type(symbol)](*sides)
    raise LookupError(f"{type(node).__name__} has no value")


TOLERANCE = 1e-5
"""Largest difference between two sides, or between a value and the target."""

_CHARACTERS = str.maketrans(
    "\u2217\u2219\u2715\u2716\u2215\u2797\u2795\u2796\u2010\u2011\u2012\u2014", "****//+-----"
)
_FRAME = "*`_.,; \n"
_BOXED = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
_MARKUP = re.compile(r"(?<==)\s*\*\*|\*\*(?=\s*=)|\\boxed(?=\s*\{[\d.,/\s-]*\})")
_EQUALS = re.compile(r"=+>?|\\approx(?![a-z])|\u2192")
_BRACKET = re.compile(r"(\\frac(?![a-z]))|(\\?[\[{(])|(\\?[\]})])")
_TIMES = re.compile(r"(?<=[\d)])(\s*)[xX](?=\s*[\d(+-])|\\ast(?![a-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_STATED = re.compile(r"\s*([+-]?\d+\.\d+)\s*", re.ASCII)


def answer_value(answer: str, numbers: Sequence[int]) -> Number | None:
    """Return the value of an answer; None if it does not count, see the module."""
    if len(answer) > MAX_EXPRESSION:
        return None
    text = plain_notation(answer.strip(_FRAME).translate(_CHARACTERS)).strip(_FRAME)
    boxed = _BOXED.fullmatch(text)
    text = _MARKUP.sub("", boxed[1] if boxed else text)
    text = " ".join(_round_brackets(text).split())
    sides = _EQUALS.split(_TIMES.sub(r"\1*", _THOUSANDS.sub("", text)))
    values = [
        float(stated[1]) if (stated := _STATED.fullmatch(side)) else evaluate(side)
        for side in sides
    ]
    used = next(
        (value for side, value in zip(sides, values, strict=True) if uses(side, numbers)), None
    )
    if used is None or any(value is None or abs(value - used) >= TOLERANCE for value in values):
        return None
    return used


def uses(expression: str, numbers: Sequence[int]) -> bool:
    """Whether the numbers of an expression are exactly those of a row."""
    return has_legal_characters(expression) and sorted(literals(expression)) == sorted(numbers)


def _round_brackets(text: str) -> str:
    r"""Return a text with round brackets and `/` in place of other brackets and `\frac`."""
    closings: list[str] = []
    closing = ")"

    def replace(token: re.Match[str]) -> str:
        nonlocal closing
        if token[1]:
            closing = ")/"
            return "("
        if token[2]:
            closings.append(closing)
            closing = ")"
            return "("
        closed = closings.pop() if closings else ")"
        closing = "))" if closed == ")/" else ")"
        return closed

    return _BRACKET.sub(replace, text)


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

_INTEGER_TOLERANCE = 1e-9
_LARGEST_VOTED_LITERAL = 1000
_PROMPT = re.compile(
    r"Using the numbers \[(?P<numbers>\d{1,10}(?:, \d{1,10}){0,63})\], "
    r"create an equation that equals (?P<target>-?\d{1,20}(?:\.\d{1,20})?)\. "
)


class Countdown(AnswerTask):
    """The Countdown task; rows are `{"numbers": [44, 19, 35], "target": 98}`."""

    name = "countdown"
    scorer = "countdown-v2"
    max_tokens = 1024

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check `numbers` and `target` (a number or its decimal text); drop other columns."""
        listed = columns.listed(raw, "numbers")
        numbers = list(map(columns.whole, listed)) if isinstance(listed, list) else []
        if not numbers or not all(
            type(each) is int and 0 <= each <= MAX_NUMBER for each in numbers
        ):
            raise InvalidInputError(
                f"must be a list of integers from 0 to {MAX_NUMBER}", field="numbers"
            )
        target = columns.number(raw.get("target"))
        if type(target) not in {int, float} or not abs(cast("Number", target)) <= MAX_NUMBER:
            raise InvalidInputError(
                f"must be a number of at most {MAX_NUMBER} in absolute value", field="target"
            )
        return {"numbers": numbers, "target": target}

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns of `parse`: the target is part of the question."""
        return self.parse(raw)

    def read_prompt(self, prompt: str) -> Row:
        """Return the numbers and the target that a prompt of `messages` names."""
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
        target = columns.number_text(_target_of(row))
        text = USER.format(numbers=_numbers(row), target=target)
        return Message("system", SYSTEM), Message("user", text)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward = 0.1 * format + answer."""
        vote = self.vote(row, completion)
        answer = self._answers(row, completion)
        return Judgement(0.1 * format_score(completion) + answer, vote, _hits(row, vote))

    def gold(self, row: Row) -> str:
        return columns.number_text(_target_of(row))

    def vote(self, row: Row, completion: str) -> str | None:
        return vote_key(answer_value(stated_answer(completion) or "", _numbers(row)))

    def _answers(self, row: Row, completion: str) -> bool:
        """Whether the completion's answer is legal and equals the target."""
        return _hits(row, self.vote(row, completion))


class PublishedCountdown(Countdown):
    """Countdown scored as the published code does, quirks included."""

    scorer = "countdown-reference-v1"

    def vote(self, row: Row, completion: str) -> str | None:
        numbers = _numbers(row)
        if max(numbers) > _LARGEST_VOTED_LITERAL:
            return None
        return vote_key(_published_value((last_answer(completion) or "").strip(), numbers))

    def _answers(self, row: Row, completion: str) -> bool:
        """Whether the answer, without one final newline, is legal and equals the target."""
        expression = (last_answer(completion) or "").removesuffix("\n")
        value = _published_value(expression, _numbers(row))
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


def _published_value(expression: str, numbers: Sequence[int]) -> Number | None:
    return evaluate(expression, PYTHON) if uses(expression, numbers) else None


def _hits(row: Row, vote: str | None) -> bool:
    """Whether the voted value is the target, within 1e-5."""
    return vote is not None and abs(float(vote) - _target_of(row)) < TOLERANCE


def _numbers(row: Row) -> list[int]:
    return cast("list[int]", row["numbers"])


def _target_of(row: Row) -> Number:
    return cast("Number", row["target"])
