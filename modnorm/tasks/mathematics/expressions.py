r"""Parses expressions in LaTeX or plain text into functions of their symbols.

The grammar covers final answers:

- sums, products (also implicit ones), quotients, powers, roots, factorials, binomials;
- absolute values, floors, ceilings and elementary functions;
- repeating decimals, mixed numbers, one-letter symbols with subscripts, pi, e and i.

Other text is no expression. The recursive descent takes linear time; `MAX_DEPTH` bounds the
nesting.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypeAlias

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.values import Value

Point = Mapping[str, Value]
"""A value for every symbol."""
Expression = Callable[[Point], Value]


def constant(value: Value) -> Expression:
    return lambda _: value


def after(outer: Callable[[Value], Value], inner: Expression) -> Expression:
    return lambda point: outer(inner(point))


def fold(operation: Callable[[Value, Value], Value], *operands: Expression) -> Expression:
    """Return operation(... operation(first, second) ..., last)."""
    if len(operands) == 1:
        return operands[0]

    def evaluate(point: Point) -> Value:
        value = operands[0](point)
        for operand in operands[1:]:
            value = operation(value, operand(point))
        return value

    return evaluate


def negative(operand: Expression) -> Expression:
    return after(values.negate, operand)


def elementary(name: str) -> Callable[[Value], Value]:
    """Return an elementary function by mpmath's name."""
    return partial(values.elementary, name)


def repeating(whole: str, fixed: str, period: str) -> Fraction:
    """Return the value of a repeating decimal: `repeating("", "1", "6")` is 0.1666... = 1/6."""
    scale = 10 ** len(fixed)
    start = Fraction(int(f"{whole}{fixed}" or "0"), scale)
    return start + Fraction(int(period), (10 ** len(period) - 1) * scale)


Values: TypeAlias = Sequence[Value | None]
"""Values at the points; None if an expression has no real value."""

MAX_NEGATIVE = 4
"""Number of symbols, the first by name, that take a negative value at a point of their own."""

_RANGES = ((Fraction(1, 3), 3), (3, 10), (10, 40))
"""Range of the symbols at each point; floors and ceilings need large values as well."""
_NEGATIVE = 1
"""Index of the point at which one symbol changes its sign; factorials of larger ones vanish."""
_DIGITS = 10
_UNDEFINED = "?"


def positive_points(symbols: Iterable[str]) -> list[Point]:
    """Return the points with positive symbols; one empty point without symbols."""
    names = sorted(symbols)
    if not names:
        return [{}]
    return [{name: coordinate(name, index) for name in names} for index in range(len(_RANGES))]


def negative_points(symbols: Iterable[str]) -> Iterator[Point]:
    names = sorted(symbols)
    for negative in names[:MAX_NEGATIVE]:
        point = {name: coordinate(name, _NEGATIVE) for name in names}
        yield {**point, negative: values.negate(point[negative])}


@lru_cache(maxsize=1024)
def coordinate(name: str, index: int) -> Value:
    """Return a number that depends only on the symbol's name and the point's index."""
    digest = hashlib.sha256(f"{index} {name}".encode()).digest()
    low, high = _RANGES[index]
    share = Fraction(int.from_bytes(digest[:16], "big"), 2**128)
    return values.inexact(low + share * (high - low))


def evaluate(expression: Expression, symbols: Collection[str]) -> Values:
    """Return the values of an expression, first at the points with positive symbols."""
    with values.LOCK:
        first = [expression(point) for point in positive_points(symbols)]
        if not all(map(values.is_real, first)):
            return first
        return [*first, *(_real(expression, point) for point in negative_points(symbols))]


def show(symbols: Collection[str], shown: Values) -> str:
    """Return the value of a constant, else the symbols and the values at the points."""
    digits = _DIGITS if symbols else values.DIGITS_SHOWN
    parts = [_UNDEFINED if value is None else values.show(value, digits) for value in shown]
    defined = {*parts} - {_UNDEFINED}
    if len(defined) == 1:
        return defined.pop()
    return f"{', '.join(sorted(symbols))}: {' | '.join(parts)}"


def _real(expression: Expression, point: Point) -> Value | None:
    try:
        value = expression(point)
    except (ArithmeticError, ValueError):
        return None
    return value if values.is_real(value) else None


MAX_LENGTH = 400
MAX_DEPTH = 40

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3}(?!\d))?", re.ASCII)
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}", re.ASCII)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_NAME = re.compile(r"\\?([A-Za-z]+)")
_WORD = re.compile(r"[A-Za-z]+")
_MIXED = re.compile(r"\s*(?=\\frac\s*\{?\s*\d)")
_PLAIN_MIXED = re.compile(r"(\d+)\s+(\d+/\d+)(?![\d.])", re.ASCII)
_INVERSE = re.compile(r"\s*\^\s*\{\s*-\s*1\s*\}")
_SUBSCRIPT = re.compile(r"\s*_\s*(?:\{([^{}]{1,20})\}|([A-Za-z0-9]))")
_FUNCTIONS = {
    **{name: name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "exp")},
    **{name: name for name in ("sinh", "cosh", "tanh")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan")},
    "ln": "log",
}
_GREEK = frozenset(
    {"alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "iota",
     "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi",
     "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi", "Omega", "ell"}
)  # fmt: skip
_PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|"}
_PLAIN = frozenset({"sqrt", "pi", "log", *_FUNCTIONS})


class ExpressionSyntaxError(ValueError):
    """The text is no expression in the grammar."""


def read(text: str) -> tuple[Expression, frozenset[str]]:
    if len(text) > MAX_LENGTH:
        raise ExpressionSyntaxError("too long")
    reader = _Reader(text)
    expression = reader.sum()
    reader.end()
    return expression, frozenset(reader.symbols)


class _Reader:
    """A position in a text; each method parses one construct of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._bars = 0
        self.symbols: set[str] = set()

    def end(self) -> None:
        self._skip_space()
        if self._at < len(self._text):
            raise ExpressionSyntaxError(self._text[self._at :])

    def sum(self) -> Expression:
        terms = [self._product()]
        while (sign := self._take("+", "-")) is not None:
            term = self._product()
            terms.append(term if sign == "+" else negative(term))
        return fold(values.add, *terms)

    def _product(self) -> Expression:
        factors = [self._signed()]
        while True:
            symbol = self._take("*", "/")
            if symbol == "/":
                factors.append(after(values.invert, self._signed()))
            elif symbol == "*":
                factors.append(self._signed())
            elif self._starts_factor():
                factors.append(self._power())
            else:
                return fold(values.multiply, *factors)

    def _signed(self) -> Expression:
        minus = False
        while (sign := self._take("+", "-")) is not None:
            minus ^= sign == "-"
        operand = self._power()
        return negative(operand) if minus else operand

    def _power(self) -> Expression:
        tower = [self._factorial()]
        while self._take("^", "**") is not None:
            self._descend()
            tower.append(self._exponent())
        self._depth -= len(tower) - 1
        power = tower.pop()
        while tower:
            power = fold(values.power, tower.pop(), power)
        return power

    def _factorial(self) -> Expression:
        operand = self._operand()
        return operand if self._take("!") is None else after(values.factorial, operand)

    def _exponent(self) -> Expression:
        if self._peek() == "{":
            return self._bracketed("{")
        minus = self._take("-") is not None
        operand = self._short_exponent() or self._operand()
        return negative(operand) if minus else operand

    def _short_exponent(self) -> Expression | None:
        r"""Parse a decimal that another number may follow, such as the 2 in `\cos^2 60`."""
        self._skip_space()
        match = _NUMBER.match(self._text, self._at)
        if match is None or _REPEATING.match(self._text, self._at):
            return None
        return self._literal(match)

    def _operand(self) -> Expression:
        self._descend()
        operand = self._read_operand()
        self._depth -= 1
        return operand

    def _read_operand(self) -> Expression:
        number = self._number()
        if number is not None:
            return number
        character = self._peek()
        if character in _PAIRS:
            return self._bracketed(character)
        if character == "\\":
            return self._command()
        return self._word()

    def _number(self) -> Expression | None:
        r"""Parse a decimal, a repeating decimal, or a mixed number such as `1\frac{4}{5}`."""
        self._skip_space()
        match = _REPEATING.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return constant(repeating(match[1], match[2], match[3]))
        match = _PLAIN_MIXED.match(self._text, self._at)
        if match is not None and int(match[2].partition("/")[2]):
            self._at = match.end()
            return constant(int(match[1]) + Fraction(match[2]))
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            return None
        number = self._literal(match)
        self._skip_space()
        if _NUMBER.match(self._text, self._at):
            raise ExpressionSyntaxError("two numbers without an operation")
        if match[0].isdigit() and _MIXED.match(self._text, self._at):
            return fold(values.add, number, self._command())
        return number

    def _literal(self, match: re.Match[str]) -> Expression:
        self._at = match.end()
        return constant(Fraction(match[0]))

    def _bracketed(self, opening: str) -> Expression:
        if opening == "|":
            return self._absolute()
        self._expect(opening)
        content = self.sum()
        self._expect(_PAIRS[opening])
        return content

    def _absolute(self) -> Expression:
        self._expect("|")
        self._bars += 1
        content = self.sum()
        self._bars -= 1
        self._expect("|")
        return after(values.magnitude, content)

    def _command(self) -> Expression:
        self._skip_space()
        match = _COMMAND.match(self._text, self._at)
        if match is None:
            raise ExpressionSyntaxError(self._text[self._at :])
        self._at = match.end()
        return self._named(match[1])

    def _named(self, name: str) -> Expression:
        if name in _FUNCTIONS:
            return self._function(name)
        if name == "pi":
            return constant(values.constant(name))
        if name in _GREEK:
            return self._symbol(name)
        construct = self._constructs().get(name)
        if construct is None:
            raise ExpressionSyntaxError(name)
        return construct()

    def _constructs(self) -> Mapping[str, Callable[[], Expression]]:
        return {
            "frac": self._fraction,
            "binom": lambda: fold(values.binomial, self._argument(), self._argument()),
            "sqrt": self._root,
            "log": self._logarithm,
            "lfloor": lambda: self._enclosed(values.floor, "\\rfloor"),
            "lceil": lambda: self._enclosed(values.ceiling, "\\rceil"),
            "lvert": lambda: self._enclosed(values.magnitude, "\\rvert"),
        }

    def _fraction(self) -> Expression:
        upper, lower = self._argument(), self._argument()
        return fold(values.multiply, upper, after(values.invert, lower))

    def _root(self) -> Expression:
        degree = self._bracketed("[") if self._peek() == "[" else constant(Fraction(2))
        radicand = self._bracketed("(") if self._peek() == "(" else self._argument()
        return fold(values.root, degree, radicand)

    def _enclosed(self, outer: Callable[[Value], Value], closing: str) -> Expression:
        content = self.sum()
        self._expect(closing)
        return after(outer, content)

    def _function(self, name: str) -> Expression:
        inverse = _INVERSE.match(self._text, self._at)
        if inverse is not None and f"arc{name}" in _FUNCTIONS:
            self._at = inverse.end()
            return self._function(f"arc{name}")
        exponent = self._exponent() if self._take("^") is not None else None
        value = after(elementary(_FUNCTIONS[name]), self._function_argument())
        return value if exponent is None else fold(values.power, value, exponent)

    def _logarithm(self) -> Expression:
        """Parse a logarithm; the default base is ten."""
        based = self._take("_") is not None
        base = self._argument() if based else constant(Fraction(10))
        logarithm = after(elementary("log"), self._function_argument())
        divisor = after(values.invert, after(elementary("log"), base))
        return fold(values.multiply, logarithm, divisor)

    def _function_argument(self) -> Expression:
        r"""Parse `(...)` or `{...}`, or a product up to the next sign, operator or function.

        Brackets end the argument: in `\ln{(2)}^2`, as sympy prints it, the power applies to the
        logarithm.
        """
        if self._peek() in {"(", "[", "{"}:
            return self._bracketed(self._peek())
        factors = [self._signed()]
        while self._starts_factor() and not self._starts_function():
            factors.append(self._power())
        return fold(values.multiply, *factors)

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionSyntaxError("too deep")

    def _argument(self) -> Expression:
        """Parse an argument of a command: a group in braces, or one digit, letter or command."""
        self._descend()
        argument = self._read_argument()
        self._depth -= 1
        return argument

    def _read_argument(self) -> Expression:
        character = self._peek()
        if character == "{":
            return self._bracketed("{")
        if character.isascii() and character.isdigit():
            self._at += 1
            return constant(Fraction(character))
        if character.isascii() and character.isalpha():
            self._at += 1
            return self._letter(character)
        return self._command()

    def _word(self) -> Expression:
        """Parse a name without a backslash, such as `sin`, or a variable of one letter."""
        match = _WORD.match(self._text, self._at)
        if match is None:
            raise ExpressionSyntaxError(self._text[self._at :])
        if match[0] in _PLAIN:
            self._at = match.end()
            return self._named(match[0])
        if len(match[0]) > 3:
            raise ExpressionSyntaxError(match[0])
        self._at += 1
        return self._letter(match[0][0])

    def _letter(self, letter: str) -> Expression:
        if letter in {"e", "i"} and not _SUBSCRIPT.match(self._text, self._at):
            return constant(values.constant(letter))
        return self._symbol(letter)

    def _symbol(self, name: str) -> Expression:
        subscript = _SUBSCRIPT.match(self._text, self._at)
        if subscript is not None:
            self._at = subscript.end()
            name = f"{name}_{(subscript[1] or subscript[2]).replace(' ', '')}"
        self.symbols.add(name)
        return lambda point: point[name]

    def _starts_factor(self) -> bool:
        character = self._peek()
        if character == "|":
            return self._bars == 0
        if character == "\\":
            match = _COMMAND.match(self._text, self._at)
            return match is not None and match[1] not in {"rfloor", "rceil", "rvert"}
        return character.isascii() and (character.isalnum() or character in {"(", "[", "{", "."})

    def _starts_function(self) -> bool:
        match = _NAME.match(self._text, self._at)
        return match is not None and match[1] in {*_FUNCTIONS, "log"}

    def _skip_space(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _peek(self) -> str:
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _take(self, *symbols: str) -> str | None:
        self._skip_space()
        for symbol in symbols:
            if self._text.startswith(symbol, self._at):
                self._at += len(symbol)
                return symbol
        return None

    def _expect(self, symbol: str) -> None:
        if self._take(symbol) is None:
            raise ExpressionSyntaxError(f"{symbol} is missing")
