"""Reasons why some references do not count and some changed answers do, each with a check.

A reason with rows applies exactly to those. Every check reads only the statement, never the
scorer, so that a wrong scorer cannot explain itself.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from operator import add, mul, sub, truediv

from verification.references.statements import REWORDED, Statement

BOTH = ("", "reference")
PUBLISHED = ("reference",)
DEFAULT = ("",)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason why statements of some wordings have unexpected scores."""

    tasks: Sequence[str]
    scorers: Sequence[str]
    """Scorer names without task and version; "" for the default."""
    right: bool
    """Whether it concerns references that do not count; otherwise wrong answers that do."""
    reason: str
    holds: Callable[[Statement], bool]
    rows: frozenset[str] | None = None
    """Ids of all affected rows; None for all rows that pass the check."""

    def concerns(self, task: str, scorer: str) -> bool:
        kind = scorer.removeprefix(task).rpartition("-v")[0].removeprefix("-")
        return task in self.tasks and kind in self.scorers

    def explains(self, task: str, scorer: str, statement: Statement) -> bool:
        return (
            self.concerns(task, scorer)
            and self.right == statement.wording.right
            and (self.rows is None or statement.row_id in self.rows)
            and self.holds(statement)
        )


_ROUNDING = Fraction(1, 10**12)
_NUMBER = re.compile(r"-?[0-9]+\.?[0-9]*")
_FRACTION = re.compile(r"\\frac\{[^{}]+\}\{[^{}]+\}")
_UNIT = re.compile(r"\\(?:text|mbox)\s*\{[^{}]*\}(?:\^[0-9])?")
_OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
}


def _other_numbers(statement: Statement) -> bool:
    numbers = statement.raw["numbers"]
    used = [int(text) for text in re.findall("[0-9]+", statement.wording.answer)]
    return isinstance(numbers, list) and bool(used) and sorted(used) != sorted(numbers)


def _same_value(statement: Statement) -> bool:
    """Return whether the changed expression gives the target, a float in some rows."""
    if _other_numbers(statement):
        return False
    value = _exact(ast.parse(statement.wording.answer, mode="eval").body)
    return abs(value - Fraction(str(statement.raw["target"]))) < _ROUNDING


def _exact(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_exact(node.left), _exact(node.right))
    return Fraction(ast.unparse(node))


def _set_up_needs_program(statement: Statement) -> bool:
    classes = re.findall(r"^class (\w+)", statement.wording.answer, re.MULTILINE)
    setup = str(statement.raw["test_setup_code"])
    return any(f"{name}(" in setup for name in classes)


def _minus_zero(statement: Statement) -> bool:
    return statement.truth.split(",")[0] == "0" and statement.wording.answer[:2] == "-0"


def _same(form: Callable[[str], object]) -> Callable[[Statement], bool]:
    """Return a check whether both answers have one form."""
    return lambda statement: form(statement.truth) == form(statement.wording.answer)


def _value(answer: str) -> str:
    return re.split(r"=|\\in\b|(?=\\geqslant)", answer)[-1].strip()


def _numbers(answer: str) -> object:
    """Return the numbers of an answer; what equals nothing without any."""
    joined = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", answer.replace(" ", ""))
    return [float(number) for number in _NUMBER.findall(joined)] or object()


def _first_fraction(answer: str) -> object:
    """Return the fraction that an answer begins with; what equals nothing without one."""
    match = _FRACTION.match(answer)
    return match[0] if match else object()


_MATHEMATICS = ("math500", "olympiadbench")
_NO_SOLUTION = """
    276 279 283 315 557 559 715 803 964 1021 1022 1136 1353 1454 1619 1780 1781 1836 2123
"""
_OTHER_NUMBERS = "263 281 429 566 640 798 800 1085 1178 1340 1444 1560 1574 1847 1984"
_EARLY_BOXES = """
    test/algebra/351.json test/algebra/2277.json test/counting_and_probability/803.json
    test/counting_and_probability/870.json test/geometry/627.json test/geometry/965.json
    test/intermediate_algebra/2015.json test/precalculus/801.json
"""

EXPLANATIONS = (
    Explanation(
        ("countdown",), BOTH, right=True,
        holds=lambda statement: statement.raw["solution"] is None,
        reason="the file has no solution", rows=frozenset(_NO_SOLUTION.split()),
    ),
    Explanation(
        ("countdown",), BOTH, right=True, holds=_other_numbers,
        reason="the stored solution omits a number and uses another twice",
        rows=frozenset(_OTHER_NUMBERS.split()),
    ),
    Explanation(
        ("countdown",), BOTH, right=False, holds=_same_value,
        reason="the changed expression gives the target too",
    ),
    Explanation(
        ("math500",), PUBLISHED, right=True,
        holds=lambda statement: "\\boxed" not in statement.wording.completion[-500:],
        reason="the box begins before the last 500 characters, and only those are read",
        rows=frozenset(_EARLY_BOXES.split()),
    ),
    Explanation(
        ("olympiadbench",), PUBLISHED, right=True,
        holds=lambda statement: statement.wording.completion.startswith("####")
        and "\\boxed" not in statement.wording.completion,
        reason="`####` is unknown to the published code, which reads boxes and closing phrases",
    ),
    Explanation(
        _MATHEMATICS, PUBLISHED, right=True,
        holds=lambda statement: statement.wording.name == REWORDED,
        reason="it is compared as text in few spellings, then by its numbers",
    ),
    Explanation(
        ("mbpp",), PUBLISHED, right=True, holds=_set_up_needs_program,
        reason="the set-up code comes first, and needs a class of the program",
        rows=frozenset({"367", "927"}),
    ),
    Explanation(("gsm8k",), DEFAULT, right=False, holds=_minus_zero, reason="-0 is 0"),
    Explanation(_MATHEMATICS, BOTH, right=False, holds=_minus_zero, reason="-0 is 0"),
    Explanation(
        _MATHEMATICS, DEFAULT, right=False, holds=_same(_value),
        reason="the name is dropped: `y = 5` is 5, as is `x = 5`; `m > 2` is `n > 2`",
    ),
    Explanation(
        ("math500",), DEFAULT, right=False, holds=_same(partial(_UNIT.sub, "")),
        reason="units are dropped, whatever they are",
    ),
    Explanation(
        _MATHEMATICS, PUBLISHED, right=False, holds=_same(_numbers),
        reason="the same numbers occur in both, as floats and without commas before three digits",
    ),
    Explanation(
        ("olympiadbench",), PUBLISHED, right=False, holds=_same(_first_fraction),
        reason="both begin with one fraction, and nothing after it is compared",
    ),
)  # fmt: skip
