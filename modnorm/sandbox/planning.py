"""Plans tests so that the program never sees the values that it is compared with.

`assert f(3) == [1, 2]` becomes: ask the program for `f(3)`, compare the answer with `[1, 2]` in
this process. The program can pass only with right values. Changing `assert`, `==` or the driver
in its own process does not help it.

A test is judged if this process can compute its condition from the program's answers. One side of
each comparison must contain a constant. Other tests (loops, `f(1) == g(1)`, `check(f)`) are
refused.

Steps and arguments run in the program's process: what a call is given is its input, never an
expected value. So they contain no operator, no `def` and no `lambda` that reads a name of the
program, and answers are given to the program's own functions only.
"""

import ast
import symtable
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from modnorm.sandbox import constants
from modnorm.sandbox.constants import NotConstantError

Ask = Callable[[str], object]
"""Returns the program's answer to an expression's source."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of a condition. Its queries follow Python's order of evaluation."""

    value: Callable[[Ask], object]
    asks: bool
    """Whether any part of it asks the program."""
    hides: bool = False
    """Whether it contains a constant, which the program never sees."""
    source: str | None = None
    """What the program is asked, if it evaluates the whole."""


Step = str | Expression
"""Statements that the program's process runs, or a condition that must hold."""


class NotJudgeableError(ValueError):
    """Only the program's process can decide a part of the test: the argument is its source."""


class _RefusedError(Exception):
    def __init__(self, node: ast.stmt | ast.expr) -> None:
        super().__init__()
        self.node = node


def plan_test(test: str) -> Sequence[Step]:
    """Return the steps of a test, in order; raise NotJudgeableError without a query.

    A program may define a function with the name of a built-in. A test that would otherwise have
    no query, such as `assert sum(10, 15) == 6`, is read as a test of that function.
    """
    body = ast.parse(test).body
    refusal: NotJudgeableError | None = None
    for shadowed in (frozenset[str](), _first_built_in(body)):
        planner = _Planner(shadowed)
        try:
            steps = tuple(map(planner.step, body))
        except _RefusedError as error:
            refusal = refusal or NotJudgeableError(planner.refused(error.node))
            continue
        conditions = [step for step in steps if isinstance(step, Expression)]
        if conditions and all(condition.asks for condition in conditions):
            return steps
    raise refusal or NotJudgeableError(test)


def _first_built_in(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the first built-in that a test calls; empty without one."""
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Name(id=name)) if constants.is_builtin_name(name):
                    return frozenset((name,))
    return frozenset()


@dataclass(frozen=True, slots=True)
class _Planner:
    """Converts the statements of a test to steps."""

    shadowed: frozenset[str]
    """Built-in names that the program is taken to define."""
    imported: set[str] = field(default_factory=set)
    """Names that the test imported so far."""
    foreign: set[str] = field(default_factory=set)
    """Targets that the test assigned other values than the program's, such as `[f(1)]`."""

    def step(self, statement: ast.stmt) -> Step:
        if isinstance(statement, ast.Assert):
            return self._condition(statement.test)
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(module="typing", names=names):
                self.imported.update((each.asname or each.name).split(".")[0] for each in names)
                judgeable = True
            case ast.ImportFrom(names=names):  # not `from operator import eq`
                judgeable = all(
                    each.asname is None and constants.is_builtin_name(each.name) for each in names
                )
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self.step(ast.Assign([target], value, lineno=statement.lineno))
            case ast.Assign(targets=targets, value=value):
                judgeable = self._is_value(value) and all(map(self._is_answer, targets))
                if self._root(value) in {"", *self.imported}:
                    self.foreign.update(
                        ast.unparse(node)
                        for target in targets
                        for node in ast.walk(target)
                        if isinstance(getattr(node, "ctx", None), ast.Store)
                    )
            case ast.Expr(value=ast.Call(func=function, args=arguments, keywords=keywords)):
                judgeable = self._is_answer(function) and self._takes(
                    function, arguments, keywords
                )
            case ast.Expr(value=ast.Constant()):
                judgeable = True
            case _:
                judgeable = False
        if not judgeable:
            raise _RefusedError(statement)
        return ast.unparse(statement)

    def _condition(self, node: ast.expr) -> Expression:
        """Return an expression whose truth value decides."""
        match node:
            case ast.BoolOp(op=junction, values=parts):
                decide = all if isinstance(junction, ast.And) else any
                conditions = list(map(self._condition, parts))
                return Expression(
                    lambda ask: decide(condition.value(ask) for condition in conditions),
                    asks=any(condition.asks for condition in conditions),
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._condition(operand)
                return Expression(lambda ask: not inner.value(ask), asks=inner.asks)
        expression = self._expression(node)
        return (
            expression if expression.source is None else _query(f"not not ({expression.source})")
        )

    def _expression(self, node: ast.expr) -> Expression:
        try:
            constant = constants.evaluate(node, self.shadowed)
        except NotConstantError:
            pass
        else:
            return Expression(lambda _: constant, asks=False, hides=True)
        match node:
            case ast.Compare():
                return self._comparison(node)
            case ast.BinOp(op=operation) if type(operation) in constants.ARITHMETIC:
                function = constants.ARITHMETIC[type(operation)]
                return self._applied(node, function, [node.left, node.right])
            case ast.UnaryOp(op=sign) if type(sign) in constants.SIGNS:
                return self._applied(node, constants.SIGNS[type(sign)], [node.operand])
            case ast.Call(args=arguments, keywords=keywords):
                name = ast.unparse(node.func)
                named = all(word.arg is not None for word in keywords)
                if name in constants.NUMERIC and name not in self.shadowed and named:
                    return self._applied(node, constants.NUMERIC[name], arguments, keywords)
        return self._answer(node)

    def _comparison(self, node: ast.Compare) -> Expression:
        operands = [self._expression(operand) for operand in (node.left, *node.comparators)]
        if not all(left.hides or right.hides for left, right in pairwise(operands)):
            raise _RefusedError(node)
        comparisons = [constants.COMPARISONS[type(symbol)] for symbol in node.ops]

        def value(ask: Ask) -> bool:
            left = operands[0].value(ask)
            for compare, operand in zip(comparisons, operands[1:], strict=True):
                right = operand.value(ask)
                if not compare(left, right):
                    return False
                left = right
            return True

        return Expression(value, asks=any(operand.asks for operand in operands))

    def _applied(
        self,
        node: ast.expr,
        function: constants.Function,
        arguments: Sequence[ast.expr],
        keywords: Sequence[ast.keyword] = (),
    ) -> Expression:
        """Apply a function of numbers here if that hides a constant or the program cannot."""
        try:
            inner = [self._expression(argument) for argument in arguments]
            named = {str(word.arg): self._expression(word.value) for word in keywords}
        except _RefusedError:
            return self._answer(node)
        parts = (*inner, *named.values())
        hides = any(part.hides for part in parts)
        if not hides and (len(parts) > 1 or self._is_answer(node)):
            return self._answer(node)
        if not any(part.asks for part in parts):
            raise _RefusedError(node)

        def value(ask: Ask) -> object:
            values = [constants.bounded_number(part.value(ask)) for part in inner]
            words = {word: constants.bounded_number(named[word].value(ask)) for word in named}
            return function(*values, **words)

        return Expression(value, asks=True, hides=hides)

    def _answer(self, node: ast.expr) -> Expression:
        if not self._is_answer(node):
            raise _RefusedError(node)
        return _query(ast.unparse(node))

    def refused(self, node: ast.stmt | ast.expr) -> str:
        """Return the source of the innermost part that may not run in the program's process."""
        if isinstance(node, ast.expr | ast.Assign | ast.Expr):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr) and not self._is_input(part):
                    return self.refused(part)
        return ast.unparse(node)

    def _is_answer(self, node: ast.expr) -> bool:  # noqa: PLR0911  # one return for each form
        """Whether an expression is an answer of the program and contains no expected value.

        Answers are calls of functions that are not built in, names, parts of answers, methods of
        answers, and conversions of one answer (`sorted(f(x))`). `all(f(x) == y for ...)` is no
        answer: it would show the program the expected `y`, and the program could return True. Nor
        are `f(x).__eq__(y)`, `list(f(x)).count(y)` and `check(f(x) == y)`.
        """
        match node:
            case ast.Name(id=name):
                return not constants.is_builtin_name(name)
            case ast.Attribute(attr=name) if name.startswith("__"):
                return False
            case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
                return self._is_answer(inner)
            case ast.Subscript(value=inner, slice=part):
                return self._is_answer(inner) and self._is_constant(part)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return any(map(self._is_answer, items)) and all(map(self._is_value, items))
            case ast.Call(func=ast.Name(id=name) as called, args=arguments, keywords=keywords):
                if not constants.is_builtin_name(name):
                    return self._takes(called, arguments, keywords)
                if name in self.shadowed:
                    return self._are_constant(arguments, keywords)
                conversion = name in constants.CONVERSIONS and not keywords and len(arguments) == 1
                return conversion and self._is_answer(arguments[0])
            case ast.Call(func=ast.Attribute(value=inner) as method, args=arguments):
                safe = not arguments or self._root(inner) != ""
                constant = self._are_constant(arguments, node.keywords)
                return self._is_answer(method) and constant and safe
        return False

    def _is_value(self, node: ast.expr) -> bool:
        return self._is_constant(node) or self._is_answer(node)

    def _root(self, node: ast.expr) -> str:
        """Return the name, of the program or imported, that a value comes from; empty without."""
        while ast.unparse(node) not in self.foreign:
            match node:
                case ast.Name(id=name) if not constants.is_builtin_name(name):
                    return name
                case (
                    ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner)
                ):
                    node = inner
                case _:
                    break
        return ""

    def _takes(
        self, function: ast.expr, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        """Whether a call is of the program, or gives an imported function only constants."""
        root = self._root(function)
        if root in self.imported:
            return self._are_constant(arguments, keywords)
        values = (*arguments, *(keyword.value for keyword in keywords))
        return all(map(self._is_input, values)) and (root != "" or not values)

    def _is_input(self, node: ast.expr) -> bool:
        """Whether an argument is a value, reads no name of the program, or holds only such."""
        match node:
            case ast.Starred(value=inner):
                return self._is_input(inner)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return all(map(self._is_input, items))
            case ast.Dict(keys=keys, values=values):
                return all(self._is_input(item) for item in (*keys, *values) if item)
        return self._is_value(node) or _is_closed(node)

    def _are_constant(
        self, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        values = [*arguments, *(keyword.value for keyword in keywords)]
        return all(map(self._is_constant, values))

    def _is_constant(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return all(part is None or self._is_constant(part) for part in parts)
        try:
            constants.evaluate(node, self.shadowed)
        except NotConstantError:
            return False
        return True


def _is_closed(node: ast.expr) -> bool:
    """Whether an expression reads only built-in names and its own variables."""
    tables = [symtable.symtable(ast.unparse(node), "", "eval")]
    for table in tables:
        tables += table.get_children()
    symbols = (symbol for table in tables for symbol in table.get_symbols())
    return all(constants.is_builtin_name(each.get_name()) for each in symbols if each.is_global())


def _query(source: str) -> Expression:
    return Expression(lambda ask: ask(source), asks=True, source=source)
