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

from modnorm.sandbox import constants, trusted_functions
from modnorm.sandbox.conditions import (
    Aggregation,
    BooleanOperation,
    ComparisonChain,
    Constant,
    Expression,
    FunctionCall,
    Loop,
    LoopVariable,
    Negation,
    Query,
    Target,
    has_constant,
    needs_program,
    program_functions,
)
from modnorm.sandbox.constants import NotConstantError
from modnorm.sandbox.name_scope import NameScope
from modnorm.sandbox.value_decoding import is_literal


@dataclass(frozen=True, slots=True)
class RunStatements:
    """Statements that the program's process runs."""

    source: str


@dataclass(frozen=True, slots=True)
class RequireCondition:
    """A condition that must hold."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class TestPlan:
    """Steps of one test, in order, and who says that it held."""

    steps: Sequence[RunStatements | RequireCondition]
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
            steps = tuple(_Planner(NameScope(shadowed)).step(each) for each in body)
        except _NotJudgeableError:
            continue
        required = [each.condition for each in steps if isinstance(each, RequireCondition)]
        if required and all(map(needs_program, required)):
            return TestPlan(steps, judged=True)
    return TestPlan((RunStatements(test),), judged=False)


def _first_built_in(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the name of the first built-in that a test calls."""
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Name(id=name)) if constants.is_builtin_name(name):
                    return frozenset((name,))
    return frozenset()


@dataclass(frozen=True, slots=True)
class _Planner:
    """Reads the statements of a test.

    Attributes:
        names: What names mean.
    """

    scope: NameScope

    def step(self, statement: ast.stmt) -> RunStatements | RequireCondition:
        if isinstance(statement, ast.Assert):
            return RequireCondition(self._condition(statement.test))
        if any(isinstance(each, ast.Assert | ast.Raise | ast.Try) for each in ast.walk(statement)):
            raise _NotJudgeableError(type(statement).__name__)
        return RunStatements(ast.unparse(statement))

    def _condition(self, node: ast.expr) -> Expression:
        """Return an expression whose truth is what counts."""
        match node:
            case ast.BoolOp(op=operator, values=conditions):
                every = isinstance(operator, ast.And)
                return BooleanOperation(every, [self._condition(each) for each in conditions])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Negation(self._condition(operand))
        expression = self._expression(node)
        if isinstance(expression, Query):
            return replace(expression, source=f"not not ({expression.source})")
        return expression

    def _expression(self, node: ast.expr) -> Expression:
        try:
            return Constant(constants.evaluate(node, self.scope.shadowed))
        except NotConstantError:
            pass
        match node:
            case ast.Compare():
                return self._comparison_chain(node)
            case ast.BinOp() | ast.UnaryOp():
                return self._operated(node)
            case ast.ListComp():
                return self._aggregation(list, node)
            case ast.Call():
                return self._called(node)
        return self._loop_variable(node) or self._displayed(node)

    def _operated(self, node: ast.BinOp | ast.UnaryOp) -> Expression:
        match node:
            case ast.BinOp(left=left, op=operation, right=right):
                operands, function = [left, right], constants.ARITHMETIC.get(type(operation))
            case ast.UnaryOp(op=sign, operand=operand):
                operands, function = [operand], constants.SIGNS.get(type(sign))
        if not self.scope.variables and all(map(self.scope.is_constant, operands)):
            raise _NotJudgeableError("a value that is too large, or none")
        return (
            self._query(node)
            if function is None
            else self._function_call(node, function, operands)
        )

    def _loop_variable(self, node: ast.expr) -> Expression | None:
        """Return the variable of a loop, or an item of it."""
        match node:
            case ast.Name(id=name):
                return self.scope.variables.get(name)
            case ast.Subscript(value=ast.Name(id=name) as item, slice=part):
                if name in self.scope.variables:
                    return self._examined(trusted_functions.item, [item, part])
        return None

    def _displayed(self, node: ast.expr) -> Expression:
        """Return types, the program's answer, or a list or tuple of expressions."""
        kinds = trusted_functions.kinds(node, self.scope.shadowed)
        if kinds is not None:
            return Constant(kinds)
        if self.scope.is_answer(node):
            return self._query(node)
        match node:
            case ast.List(elts=items):
                return self._examined(trusted_functions.list_of, items)
            case ast.Tuple(elts=items):
                return self._examined(trusted_functions.tuple_of, items)
        raise _NotJudgeableError(type(node).__name__)

    def _called(self, node: ast.Call) -> Expression:
        name, keywords = ast.unparse(node.func), node.keywords
        if name in self.scope.shadowed:
            return self._query(node)
        match node.args:
            case [ast.GeneratorExp() | ast.ListComp() as elements]:
                if name in trusted_functions.COLLECTING and not keywords:
                    return self._gathered(name, elements)
        named = [(each.arg, each.value) for each in keywords if each.arg is not None]
        if name in constants.NUMERIC and len(named) == len(keywords):
            return self._function_call(node, constants.NUMERIC[name], node.args, named)
        if name in trusted_functions.EXAMINING and not keywords and not self.scope.is_answer(node):
            return self._examined(trusted_functions.EXAMINING[name], node.args)
        return self._query(node)

    def _gathered(self, name: str, elements: ast.GeneratorExp | ast.ListComp) -> Expression:
        """Return a function, such as `all`, of a comprehension."""
        function, decides = trusted_functions.COLLECTING[name], name in trusted_functions.DECIDING
        if isinstance(elements, ast.GeneratorExp):
            return self._aggregation(function, elements, decides=decides)
        whole = self._aggregation(list, elements, decides=decides)
        return FunctionCall(function, [whole], numeric=False)

    def _comparison_chain(self, node: ast.Compare) -> ComparisonChain:
        operands = [self._expression(each) for each in (node.left, *node.comparators)]
        for one, other in pairwise(operands):
            known = has_constant(one) or has_constant(other)
            if not known and program_functions(one) != program_functions(other):
                raise _NotJudgeableError(type(node).__name__)
        return ComparisonChain(operands, [constants.COMPARISONS[type(each)] for each in node.ops])

    def _function_call(
        self,
        node: ast.expr,
        function: constants.Function,
        arguments: Sequence[ast.expr],
        keywords: Sequence[tuple[str, ast.expr]] = (),
    ) -> Expression:
        """Apply a function here if that hides a known value, or if the program cannot be asked."""
        try:
            inner = [self._expression(each) for each in arguments]
            named = [(name, self._expression(each)) for name, each in keywords]
        except _NotJudgeableError:
            return self._query(node)
        applied = FunctionCall(function, inner, named)
        if not has_constant(applied) and self.scope.is_answer(node):
            return self._query(node)
        return self._of_one_source(applied)

    def _examined(self, function: constants.Function, arguments: Sequence[ast.expr]) -> Expression:
        """Apply a function of any values here."""
        inner = [self._expression(each) for each in arguments]
        return self._of_one_source(FunctionCall(function, inner, numeric=False))

    def _of_one_source(self, applied: FunctionCall) -> FunctionCall:
        """Return a value that is known in part, or of the same functions of the program."""
        sources = {program_functions(each) for each in applied.arguments}
        if has_constant(applied) or len(sources) <= 1:
            return applied
        raise _NotJudgeableError("different functions of the program")

    def _aggregation(
        self,
        function: constants.Function,
        node: ast.GeneratorExp | ast.ListComp,
        *,
        decides: bool = False,
    ) -> Aggregation:
        planner, loops = self, list[Loop]()
        for each in node.generators:
            if each.is_async:
                raise _NotJudgeableError("async")
            items = planner._items(each.iter)
            target, variables = planner._target(each.target, items)
            planner = _Planner(planner.scope.with_variables(variables))
            loops.append(Loop(target, items, [planner._condition(test) for test in each.ifs]))
        read = planner._condition if decides else planner._expression
        return Aggregation(function, read(node.elt), loops)

    def _items(self, node: ast.expr) -> Expression:
        """Return the values that a loop takes: known here, or a list that the program sends."""
        try:
            items = trusted_functions.items(node, self.scope.shadowed)
        except NotConstantError:
            pass
        else:
            if not isinstance(items, range) and not all(map(is_literal, items)):
                raise _NotJudgeableError("values that cannot be sent")
            return Constant(items)
        expression = self._expression(node)
        match expression:
            case Query(source=source):
                return replace(expression, source=f"list({source})")
            case LoopVariable():
                return expression
        raise _NotJudgeableError(type(node).__name__)

    def _target(self, node: ast.expr, items: Expression) -> tuple[Target, dict[str, LoopVariable]]:
        """Return what a loop assigns to, and its variables."""
        match node:
            case ast.Name(id=name) if not constants.is_builtin_name(name):
                return name, {name: LoopVariable(name, items)}
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                read = [self._target(part, items) for part in parts]
                variables = {name: each for _, inner in read for name, each in inner.items()}
                return tuple(target for target, _ in read), variables
        raise _NotJudgeableError(type(node).__name__)

    def _query(self, node: ast.expr) -> Query:
        if not self.scope.is_answer(node):
            raise _NotJudgeableError(type(node).__name__)
        return self.scope.query(node)
