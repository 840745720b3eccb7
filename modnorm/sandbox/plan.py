"""Tests taken apart, so that the program never sees what it is compared with.

`assert f(3) == [1, 2]` becomes: ask the program for `f(3)`, compare the value with `[1, 2]` here.
The program can then pass only by giving right values, which is all that passing ever meant;
that it can write over `assert`, `==` or the driver in its own process no longer matters.

A test is *judged* when each comparison in it has a side that this process knows and the other is
the program's answer. Other tests (loops around assertions, two sides that both need the program,
`check(f)`) are *self-reported*: the program's own process says that they held.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from modnorm.sandbox import closed
from modnorm.sandbox.closed import NotClosedError


@dataclass(frozen=True, slots=True)
class Known:
    """A value that needs no program."""

    value: object


@dataclass(frozen=True, slots=True)
class Asked:
    """A value that the program is asked for."""

    source: str


@dataclass(frozen=True, slots=True)
class Applied:
    """A trusted function of numbers, some of which the program is asked for."""

    function: closed.Function
    arguments: Sequence["Expression"]
    keywords: Sequence[tuple[str, "Expression"]] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """A chain of comparisons; `operators[i]` lies between operands i and i + 1."""

    operands: Sequence["Expression"]
    operators: Sequence[closed.Comparison]


@dataclass(frozen=True, slots=True)
class Joined:
    """`and` (every) or `or` of conditions, from the left until it is decided."""

    every: bool
    conditions: Sequence["Expression"]


@dataclass(frozen=True, slots=True)
class Negated:
    """`not` of a condition."""

    condition: "Expression"


Expression = Known | Asked | Applied | Compared | Joined | Negated


@dataclass(frozen=True, slots=True)
class Run:
    """Statements that the program's process runs."""

    source: str


@dataclass(frozen=True, slots=True)
class Require:
    """A condition that must hold."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class TestPlan:
    """Steps of one test, in order, and who says that it held."""

    steps: Sequence[Run | Require]
    judged: bool


class _NotJudgeableError(ValueError):
    """Part of a test can be decided only in the program's process."""


def plan_test(test: str) -> TestPlan:
    """Take a test apart.

    A program may define a function that is named like a built-in, so a test that otherwise asks
    the program nothing (`assert sum(10, 15) == 6`) is read as a test of that function.

    Raises:
        SyntaxError: it is not Python.
        ValueError: it is not Python (null bytes).
    """
    body = ast.parse(test).body
    for shadowed in (frozenset[str](), _first_built_in(body)):
        try:
            steps = tuple(_Planner(shadowed).step(each) for each in body)
        except _NotJudgeableError:
            continue
        required = [each.condition for each in steps if isinstance(each, Require)]
        if required and all(map(_asks, required)):
            return TestPlan(steps, judged=True)
    return TestPlan((Run(test),), judged=False)


def _first_built_in(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the name of the first built-in that a test calls."""
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Name(id=name)) if closed.is_known(name):
                    return frozenset((name,))
    return frozenset()


def _asks(expression: Expression) -> bool:
    """Whether the program is asked for any part of a value."""
    match expression:
        case Asked():
            return True
        case Applied(arguments=parts) | Compared(operands=parts) | Joined(conditions=parts):
            return any(map(_asks, parts))
        case Negated(condition=condition):
            return _asks(condition)
    return False


def _contributes(expression: Expression) -> bool:
    """Whether part of a value is known here and never sent to the program."""
    match expression:
        case Known():
            return True
        case Applied(arguments=arguments):
            return any(map(_contributes, arguments))
    return False


@dataclass(frozen=True, slots=True)
class _Planner:
    """Reads the statements of a test.

    Attributes:
        shadowed: Built-in names that mean functions of the program.
    """

    shadowed: frozenset[str]

    def step(self, statement: ast.stmt) -> Run | Require:
        if isinstance(statement, ast.Assert):
            return Require(self._condition(statement.test))
        if any(isinstance(each, ast.Assert | ast.Raise | ast.Try) for each in ast.walk(statement)):
            raise _NotJudgeableError(type(statement).__name__)
        return Run(ast.unparse(statement))

    def _condition(self, node: ast.expr) -> Expression:
        """Return an expression whose truth is what counts."""
        match node:
            case ast.BoolOp(op=operator, values=conditions):
                every = isinstance(operator, ast.And)
                return Joined(every, [self._condition(each) for each in conditions])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Negated(self._condition(operand))
        expression = self._expression(node)
        if isinstance(expression, Asked):
            return Asked(f"not not ({expression.source})")
        return expression

    def _expression(self, node: ast.expr) -> Expression:
        try:
            return Known(closed.evaluate(node, self.shadowed))
        except NotClosedError:
            pass
        match node:
            case ast.Compare():
                return self._compared(node)
            case ast.BinOp(left=left, op=operator, right=right):
                if (arithmetic := closed.ARITHMETIC.get(type(operator))) is not None:
                    return self._applied(node, arithmetic, [left, right])
            case ast.UnaryOp(op=operator, operand=operand):
                if (sign := closed.SIGNS.get(type(operator))) is not None:
                    return self._applied(node, sign, [operand])
            case ast.Call(func=function, args=arguments, keywords=keywords):
                name = ast.unparse(function)
                numeric = None if name in self.shadowed else closed.NUMERIC.get(name)
                named = [(each.arg, each.value) for each in keywords if each.arg is not None]
                if numeric is not None and len(named) == len(keywords):
                    return self._applied(node, numeric, arguments, named)
        return self._asked(node)

    def _compared(self, node: ast.Compare) -> Compared:
        operands = [self._expression(each) for each in (node.left, *node.comparators)]
        for one, other in pairwise(operands):
            if not _contributes(one) and not _contributes(other):
                raise _NotJudgeableError(type(node).__name__)
        return Compared(operands, [closed.COMPARISONS[type(each)] for each in node.ops])

    def _applied(
        self,
        node: ast.expr,
        function: closed.Function,
        arguments: Sequence[ast.expr],
        keywords: Sequence[tuple[str, ast.expr]] = (),
    ) -> Expression:
        """Apply a function here if that hides a known value; else ask the program for it all."""
        try:
            inner = [self._expression(each) for each in arguments]
            named = [(name, self._expression(each)) for name, each in keywords]
        except _NotJudgeableError:
            return self._asked(node)
        if any(_contributes(each) for each in (*inner, *(value for _, value in named))):
            return Applied(function, inner, named)
        return self._asked(node)

    def _asked(self, node: ast.expr) -> Asked:
        if not self._is_answer(node):
            raise _NotJudgeableError(type(node).__name__)
        return Asked(ast.unparse(node))

    def _is_answer(self, node: ast.expr) -> bool:  # noqa: PLR0911  # one a form
        """Whether an expression is the program's answer itself, not a comparison in disguise.

        Answers are calls of functions that are not built in, names, parts of answers, methods of
        answers, and conversions of one answer (`sorted(f(x))`). `all(f(x) == y for ...)` is
        none: whoever computes it learns what is expected, and need only say True.
        """
        match node:
            case ast.Name(id=name):
                return not closed.is_known(name)
            case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
                return self._is_answer(inner)
            case ast.Subscript(value=inner, slice=part):
                return self._is_answer(inner) and self._is_closed(part)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return all(self._is_answer(item) or self._is_closed(item) for item in items)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return self._is_answering_call(name, arguments, keywords)
            case ast.Call(func=ast.Attribute(value=inner), args=arguments, keywords=keywords):
                return self._is_answer(inner) and self._are_closed(arguments, keywords)
        return False

    def _is_answering_call(
        self, name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        if name in self.shadowed:
            return self._are_closed(arguments, keywords)
        if not closed.is_known(name):
            return True
        conversion = name in closed.CONVERSIONS and not keywords and len(arguments) == 1
        return conversion and self._is_answer(arguments[0])

    def _are_closed(self, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
        values = [*arguments, *(each.value for each in keywords)]
        return all(self._is_closed(each) for each in values)

    def _is_closed(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return all(part is None or self._is_closed(part) for part in parts)
        try:
            closed.evaluate(node, self.shadowed)
        except NotClosedError:
            return False
        return True
