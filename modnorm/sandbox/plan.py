"""Tests taken apart, so that the program never sees what it is compared with.

`assert f(3) == [1, 2]` becomes: ask the program for `f(3)`, compare the value with `[1, 2]` here.
The program can then pass only by giving right values, which is all that passing ever meant;
that it can write over `assert`, `==` or the driver in its own process no longer matters.

A test is *judged* when this process computes its condition from the program's answers. One side
of each comparison must be known here, or both sides must ask the same functions: `f(1) == f(1)`.
Other tests (loops around assertions, `f(1) == g(1)`, `check(f)`) are *self-reported*: the
program's own process says that they held.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from modnorm.sandbox import closed, trusted
from modnorm.sandbox.closed import NotClosedError
from modnorm.sandbox.expressions import (
    Applied,
    Asked,
    Collected,
    Compared,
    Expression,
    Joined,
    Known,
    Loop,
    Negated,
    Target,
    Variable,
    asks,
    contributes,
    functions,
)
from modnorm.sandbox.names import Names
from modnorm.sandbox.values import is_literal


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
            steps = tuple(_Planner(Names(shadowed)).step(each) for each in body)
        except _NotJudgeableError:
            continue
        required = [each.condition for each in steps if isinstance(each, Require)]
        if required and all(map(asks, required)):
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


@dataclass(frozen=True, slots=True)
class _Planner:
    """Reads the statements of a test.

    Attributes:
        names: What names mean.
    """

    names: Names

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
            return replace(expression, source=f"not not ({expression.source})")
        return expression

    def _expression(self, node: ast.expr) -> Expression:
        try:
            return Known(closed.evaluate(node, self.names.shadowed))
        except NotClosedError:
            pass
        match node:
            case ast.Compare():
                return self._compared(node)
            case ast.BinOp() | ast.UnaryOp():
                return self._operated(node)
            case ast.ListComp():
                return self._collected(list, node)
            case ast.Call():
                return self._called(node)
        return self._variable(node) or self._displayed(node)

    def _operated(self, node: ast.BinOp | ast.UnaryOp) -> Expression:
        match node:
            case ast.BinOp(left=left, op=operation, right=right):
                operands, function = [left, right], closed.ARITHMETIC.get(type(operation))
            case ast.UnaryOp(op=sign, operand=operand):
                operands, function = [operand], closed.SIGNS.get(type(sign))
        if not self.names.variables and all(map(self.names.is_closed, operands)):
            raise _NotJudgeableError("a value that is too large, or none")
        return self._asked(node) if function is None else self._applied(node, function, operands)

    def _variable(self, node: ast.expr) -> Expression | None:
        """Return the variable of a loop, or an item of it."""
        match node:
            case ast.Name(id=name):
                return self.names.variables.get(name)
            case ast.Subscript(value=ast.Name(id=name) as item, slice=part):
                if name in self.names.variables:
                    return self._examined(trusted.item, [item, part])
        return None

    def _displayed(self, node: ast.expr) -> Expression:
        """Return types, the program's answer, or a list or tuple of expressions."""
        kinds = trusted.kinds(node, self.names.shadowed)
        if kinds is not None:
            return Known(kinds)
        if self.names.is_answer(node):
            return self._asked(node)
        match node:
            case ast.List(elts=items):
                return self._examined(trusted.list_of, items)
            case ast.Tuple(elts=items):
                return self._examined(trusted.tuple_of, items)
        raise _NotJudgeableError(type(node).__name__)

    def _called(self, node: ast.Call) -> Expression:
        name, keywords = ast.unparse(node.func), node.keywords
        if name in self.names.shadowed:
            return self._asked(node)
        match node.args:
            case [ast.GeneratorExp() | ast.ListComp() as elements]:
                if name in trusted.COLLECTING and not keywords:
                    return self._gathered(name, elements)
        named = [(each.arg, each.value) for each in keywords if each.arg is not None]
        if name in closed.NUMERIC and len(named) == len(keywords):
            return self._applied(node, closed.NUMERIC[name], node.args, named)
        if name in trusted.EXAMINING and not keywords and not self.names.is_answer(node):
            return self._examined(trusted.EXAMINING[name], node.args)
        return self._asked(node)

    def _gathered(self, name: str, elements: ast.GeneratorExp | ast.ListComp) -> Expression:
        """Return a function, such as `all`, of a comprehension."""
        function, decides = trusted.COLLECTING[name], name in trusted.DECIDING
        if isinstance(elements, ast.GeneratorExp):
            return self._collected(function, elements, decides=decides)
        whole = self._collected(list, elements, decides=decides)
        return Applied(function, [whole], numeric=False)

    def _compared(self, node: ast.Compare) -> Compared:
        operands = [self._expression(each) for each in (node.left, *node.comparators)]
        for one, other in pairwise(operands):
            known = contributes(one) or contributes(other)
            if not known and functions(one) != functions(other):
                raise _NotJudgeableError(type(node).__name__)
        return Compared(operands, [closed.COMPARISONS[type(each)] for each in node.ops])

    def _applied(
        self,
        node: ast.expr,
        function: closed.Function,
        arguments: Sequence[ast.expr],
        keywords: Sequence[tuple[str, ast.expr]] = (),
    ) -> Expression:
        """Apply a function here if that hides a known value, or if the program cannot be asked."""
        try:
            inner = [self._expression(each) for each in arguments]
            named = [(name, self._expression(each)) for name, each in keywords]
        except _NotJudgeableError:
            return self._asked(node)
        applied = Applied(function, inner, named)
        if not contributes(applied) and self.names.is_answer(node):
            return self._asked(node)
        return self._of_one_source(applied)

    def _examined(self, function: closed.Function, arguments: Sequence[ast.expr]) -> Expression:
        """Apply a function of any values here."""
        inner = [self._expression(each) for each in arguments]
        return self._of_one_source(Applied(function, inner, numeric=False))

    def _of_one_source(self, applied: Applied) -> Applied:
        """Return a value that is known in part, or of the same functions of the program."""
        sources = {functions(each) for each in applied.arguments}
        if contributes(applied) or len(sources) <= 1:
            return applied
        raise _NotJudgeableError("different functions of the program")

    def _collected(
        self,
        function: closed.Function,
        node: ast.GeneratorExp | ast.ListComp,
        *,
        decides: bool = False,
    ) -> Collected:
        planner, loops = self, list[Loop]()
        for each in node.generators:
            if each.is_async:
                raise _NotJudgeableError("async")
            items = planner._items(each.iter)
            target, variables = planner._target(each.target, items)
            planner = _Planner(planner.names.with_variables(variables))
            loops.append(Loop(target, items, [planner._condition(test) for test in each.ifs]))
        read = planner._condition if decides else planner._expression
        return Collected(function, read(node.elt), loops)

    def _items(self, node: ast.expr) -> Expression:
        """Return the values that a loop takes: known here, or a list that the program sends."""
        try:
            items = trusted.items(node, self.names.shadowed)
        except NotClosedError:
            pass
        else:
            if not isinstance(items, range) and not all(map(is_literal, items)):
                raise _NotJudgeableError("values that cannot be sent")
            return Known(items)
        expression = self._expression(node)
        match expression:
            case Asked(source=source):
                return replace(expression, source=f"list({source})")
            case Variable():
                return expression
        raise _NotJudgeableError(type(node).__name__)

    def _target(self, node: ast.expr, items: Expression) -> tuple[Target, dict[str, Variable]]:
        """Return what a loop assigns to, and its variables."""
        match node:
            case ast.Name(id=name) if not closed.is_known(name):
                return name, {name: Variable(name, items)}
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                read = [self._target(part, items) for part in parts]
                variables = {name: each for _, inner in read for name, each in inner.items()}
                return tuple(target for target, _ in read), variables
        raise _NotJudgeableError(type(node).__name__)

    def _asked(self, node: ast.expr) -> Asked:
        if not self.names.is_answer(node):
            raise _NotJudgeableError(type(node).__name__)
        return self.names.ask(node)
