"""Evaluates arithmetic expressions that a model wrote, without `eval`.

The grammar is the paper's "basic arithmetic operations (+, -, *, /)": integer literals, the four
binary operators with their usual precedence, unary signs and parentheses. Values are Python's:
integers stay exact, and `/` returns a float. The parser has its own stack, so nesting needs no
recursion. The length of an expression bounds its cost.

The grammar `PYTHON` adds `**` and `//`, which the published Countdown scorer accepts. A power
beyond `MAX_BITS` has no value.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_EXPRESSION = 4096
"""Longest legal expression in characters."""

MAX_BITS = 16_384
"""Largest integer power in bits; Python refuses to print integers of so many digits."""

Number = int | float

_LEGAL = re.compile(r"[0-9+\-*/() ]+")
_LITERAL = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"[0-9]+|\*\*|//|[-+*/()]")
_SIGNS: Mapping[str, Callable[[Number], Number]] = {"sign +": operator.pos, "sign -": operator.neg}
_RIGHT_ASSOCIATIVE = "**"


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent > 0
    if whole and abs(base) > 1 and int(base).bit_length() * exponent > MAX_BITS:
        raise OverflowError("power")
    value = base**exponent
    if isinstance(value, complex):
        raise _SyntaxError("power")
    return value


@dataclass(frozen=True, slots=True)
class Grammar:
    """Binary operators by symbol, and the precedence of all operators."""

    operators: Mapping[str, Callable[[Number, Number], Number]]
    precedence: Mapping[str, int]


_BASIC_OPERATORS: Mapping[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_PRECEDENCE = {
    "(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "sign +": 3, "sign -": 3, "**": 4,
}  # fmt: skip
BASIC = Grammar(_BASIC_OPERATORS, _PRECEDENCE)
PYTHON = Grammar({**_BASIC_OPERATORS, "//": operator.floordiv, "**": _power}, _PRECEDENCE)


class _SyntaxError(ValueError):
    """The tokens form no expression."""


def has_legal_characters(expression: str) -> bool:
    """Whether a text has only ASCII digits, `+ - * / ( )` and spaces, and is not too long."""
    return len(expression) <= MAX_EXPRESSION and _LEGAL.fullmatch(expression) is not None


def literals(expression: str) -> list[int]:
    """Return the integer literals of a legal expression, in order."""
    return [int(text) for text in _LITERAL.findall(expression)]


def evaluate(expression: str, grammar: Grammar = BASIC) -> Number | None:
    """Return the finite value of an expression; None if it is illegal or has no value.

    Illegal are operators outside the grammar, implicit products, empty parentheses and literals
    such as `007`, as in Python. Division by zero and overflow give no value.
    """
    if not has_legal_characters(expression):
        return None
    try:
        value = _Evaluation(grammar).run(_TOKEN.findall(expression))
        return value if math.isfinite(value) else None
    except (_SyntaxError, ArithmeticError):
        return None


def _literal(text: str) -> int:
    if text.startswith("0") and text.strip("0"):
        raise _SyntaxError(text)
    return int(text)


class _Evaluation:
    """Operator-precedence evaluation with explicit stacks of values and pending operators."""

    def __init__(self, grammar: Grammar) -> None:
        self._operators = grammar.operators
        self._precedence = grammar.precedence
        self._values: list[Number] = []
        self._pending: list[str] = []
        self._operand_next = True

    def run(self, symbols: Sequence[str]) -> Number:
        for symbol in symbols:
            if self._operand_next:
                self._read_operand(symbol)
            else:
                self._read_operator(symbol)
        if self._operand_next:
            raise _SyntaxError("an operand is missing")
        self._apply_pending(0)
        if self._pending:
            raise _SyntaxError("a parenthesis is not closed")
        return self._values.pop()

    def _read_operand(self, symbol: str) -> None:
        if symbol[0].isdigit():
            self._values.append(_literal(symbol))
            self._operand_next = False
        elif symbol == "(":
            self._pending.append(symbol)
        elif symbol in {"+", "-"}:
            self._pending.append(f"sign {symbol}")
        else:
            raise _SyntaxError(symbol)

    def _read_operator(self, symbol: str) -> None:
        if symbol in self._operators:
            precedence = self._precedence[symbol]
            self._apply_pending(precedence + (symbol == _RIGHT_ASSOCIATIVE))
            self._pending.append(symbol)
            self._operand_next = True
        elif symbol == ")":
            self._apply_pending(0)
            if not self._pending:
                raise _SyntaxError(symbol)
            self._pending.pop()
        else:
            raise _SyntaxError(symbol)

    def _apply_pending(self, precedence: int) -> None:
        """Apply pending operators of at least this precedence, up to an open parenthesis."""
        pending = self._pending
        while pending and pending[-1] != "(" and self._precedence[pending[-1]] >= precedence:
            self._apply(pending.pop())

    def _apply(self, symbol: str) -> None:
        right = self._values.pop()
        if symbol in _SIGNS:
            self._values.append(_SIGNS[symbol](right))
        else:
            self._values.append(self._operators[symbol](self._values.pop(), right))
