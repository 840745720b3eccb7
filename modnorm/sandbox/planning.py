"""Plans tests so that the program never sees the values that it is compared with.

`assert f(3) == [1, 2]` becomes: ask the program for `f(3)`, compare the answer with `[1, 2]` in
this process. The program can pass only with right values. Changing `assert`, `==` or the driver
in its own process does not help it.

A test is judged if this process can compute its condition from the program's answers. One side of
each comparison must be constant, or both sides must query the same functions: `f(1) == f(1)`.
Other tests (loops around assertions, `f(1) == g(1)`, `check(f)`) are refused.
"""

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from modnorm.sandbox import constants, trusted_functions
from modnorm.sandbox.constants import (
    Aggregation,
    BooleanOperation,
    ComparisonChain,
    Constant,
    Expression,
    FunctionCall,
    Loop,
    LoopVariable,
    Negation,
    NotConstantError,
    Query,
    Target,
    has_constant,
    needs_program,
    program_functions,
)
from modnorm.sandbox.trusted_functions import is_literal


@dataclass(frozen=True, slots=True)
class NameScope:
    """The meaning of names at one point of a test."""

    shadowed: frozenset[str]
    variables: Mapping[str, LoopVariable] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, LoopVariable]) -> "NameScope":
        """Return the scope inside one more loop."""
        return replace(self, variables={**self.variables, **variables})

    def query(self, node: ast.expr) -> Query:
        """Return the query for an expression that the program answers."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        variables = tuple(sorted(names & self.variables.keys()))
        own = {
            name for name in names if name in self.shadowed or not constants.is_builtin_name(name)
        }
        return Query(ast.unparse(node), variables, frozenset(own.difference(variables)))

    def is_answer(self, node: ast.expr) -> bool:  # noqa: PLR0911  # one return for each form
        """Whether an expression is an answer of the program and contains no expected value.

        Answers are calls of functions that are not built in, names, parts of answers, methods of
        answers, and conversions of one answer (`sorted(f(x))`). `all(f(x) == y for ...)` is no
        answer: it would show the program the expected `y`, and the program could return True.
        """
        match node:
            case ast.Name(id=name):
                return not constants.is_builtin_name(name) and name not in self.variables
            case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
                return self.is_answer(inner)
            case ast.Subscript(value=inner, slice=part):
                return self.is_answer(inner) and self.is_constant(part)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                answers = [self.is_answer(item) for item in items]
                constant = [self.is_constant(item) for item in items]
                return any(answers) and all(map(operator.or_, answers, constant))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return self._is_answering_call(name, arguments, keywords)
            case ast.Call(func=ast.Attribute(value=inner), args=arguments, keywords=keywords):
                return self.is_answer(inner) and self._are_constant(arguments, keywords)
        return False

    def _is_answering_call(
        self, name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        if name in self.shadowed:
            return self._are_constant(arguments, keywords)
        if not constants.is_builtin_name(name):
            return True
        conversion = name in constants.CONVERSIONS and not keywords and len(arguments) == 1
        return conversion and self.is_answer(arguments[0])

    def _are_constant(
        self, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        values = [*arguments, *(keyword.value for keyword in keywords)]
        return all(map(self.is_constant, values))

    def is_constant(self, node: ast.expr) -> bool:
        """Whether an expression or slice needs constants and loop variables only."""
        match node:
            case ast.Slice():
                parts = (node.lower, node.upper, node.step)
                return all(part is None or self.is_constant(part) for part in parts)
            case ast.Name(id=name) if name in self.variables:
                return True
        try:
            constants.evaluate(node, self.shadowed)
        except NotConstantError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class RunStatements:
    """Statements that the program's process runs."""

    source: str


@dataclass(frozen=True, slots=True)
class RequireCondition:
    """A condition that must hold."""

    condition: Expression


Step = RunStatements | RequireCondition


class NotJudgeableError(ValueError):
    """Only the program's process can decide a part of the test."""


def plan_test(test: str) -> Sequence[Step]:
    """Return the steps of a test, in order; raise NotJudgeableError without a query.

    A program may define a function with the name of a built-in. A test that would otherwise have
    no query, such as `assert sum(10, 15) == 6`, is read as a test of that function.
    """
    body = ast.parse(test).body
    for shadowed in (frozenset[str](), _first_built_in(body)):
        try:
            planner = _Planner(NameScope(shadowed))
            steps = tuple(map(planner.step, body))
        except NotJudgeableError:
            continue
        conditions = [step.condition for step in steps if isinstance(step, RequireCondition)]
        if conditions and all(map(needs_program, conditions)):
            return steps
    raise NotJudgeableError(test)


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

    scope: NameScope

    def step(self, statement: ast.stmt) -> Step:
        if isinstance(statement, ast.Assert):
            return RequireCondition(self._condition(statement.test))
        if any(isinstance(node, ast.Assert | ast.Raise | ast.Try) for node in ast.walk(statement)):
            raise NotJudgeableError(type(statement).__name__)
        return RunStatements(ast.unparse(statement))

    def _condition(self, node: ast.expr) -> Expression:
        """Return an expression whose truth value decides."""
        match node:
            case ast.BoolOp(op=junction, values=conditions):
                every = isinstance(junction, ast.And)
                return BooleanOperation(every, list(map(self._condition, conditions)))
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
                operands = [
                    self._expression(operand) for operand in (node.left, *node.comparators)
                ]
                for left, right in pairwise(operands):
                    constant = has_constant(left) or has_constant(right)
                    if not constant and program_functions(left) != program_functions(right):
                        raise NotJudgeableError(type(node).__name__)
                return ComparisonChain(
                    operands, [constants.COMPARISONS[type(symbol)] for symbol in node.ops]
                )
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
            raise NotJudgeableError("a constant that cannot be evaluated")
        return (
            self._query(node)
            if function is None
            else self._function_call(node, function, operands)
        )

    def _loop_variable(self, node: ast.expr) -> Expression | None:
        """Return a loop variable or an item of it; None for anything else."""
        match node:
            case ast.Name(id=name):
                return self.scope.variables.get(name)
            case ast.Subscript(value=ast.Name(id=name) as item, slice=part):
                if name in self.scope.variables:
                    return self._examined(operator.getitem, [item, part])
        return None

    def _displayed(self, node: ast.expr) -> Expression:
        """Return types, an answer of the program, or a list or tuple of expressions."""
        types = trusted_functions.types_of(node, self.scope.shadowed)
        if types is not None:
            return Constant(types)
        if self.scope.is_answer(node):
            return self._query(node)
        match node:
            case ast.List(elts=items):
                return self._examined(lambda *values: list(values), items)
            case ast.Tuple(elts=items):
                return self._examined(lambda *values: values, items)
        raise NotJudgeableError(type(node).__name__)

    def _called(self, node: ast.Call) -> Expression:
        name, keywords = ast.unparse(node.func), node.keywords
        if name in self.scope.shadowed:
            return self._query(node)
        match node.args:
            case [ast.GeneratorExp() | ast.ListComp() as elements]:
                if name in trusted_functions.COLLECTING and not keywords:
                    return self._gathered(name, elements)
        named = [(word.arg, word.value) for word in keywords if word.arg is not None]
        if name in constants.NUMERIC and len(named) == len(keywords):
            return self._function_call(node, constants.NUMERIC[name], node.args, named)
        if name in trusted_functions.EXAMINING and not keywords and not self.scope.is_answer(node):
            return self._examined(trusted_functions.EXAMINING[name], node.args)
        return self._query(node)

    def _gathered(self, name: str, elements: ast.GeneratorExp | ast.ListComp) -> Expression:
        """Return a function, such as `all`, applied to a comprehension."""
        function, decides = trusted_functions.COLLECTING[name], name in trusted_functions.DECIDING
        if isinstance(elements, ast.GeneratorExp):
            return self._aggregation(function, elements, decides=decides)
        whole = self._aggregation(list, elements, decides=decides)
        return FunctionCall(function, [whole], numeric=False)

    def _function_call(
        self,
        node: ast.expr,
        function: constants.Function,
        arguments: Sequence[ast.expr],
        keywords: Sequence[tuple[str, ast.expr]] = (),
    ) -> Expression:
        """Apply a function here if that hides a constant or the program cannot apply it."""
        try:
            inner = [self._expression(argument) for argument in arguments]
            named = [(name, self._expression(value)) for name, value in keywords]
        except NotJudgeableError:
            return self._query(node)
        applied = FunctionCall(function, inner, named)
        if not has_constant(applied) and self.scope.is_answer(node):
            return self._query(node)
        return self._of_one_source(applied)

    def _examined(self, function: constants.Function, arguments: Sequence[ast.expr]) -> Expression:
        """Apply a function of any values here."""
        inner = [self._expression(argument) for argument in arguments]
        return self._of_one_source(FunctionCall(function, inner, numeric=False))

    def _of_one_source(self, applied: FunctionCall) -> FunctionCall:
        """Return a call that contains a constant or queries one set of functions only."""
        sources = {program_functions(argument) for argument in applied.arguments}
        if has_constant(applied) or len(sources) <= 1:
            return applied
        raise NotJudgeableError("different functions of the program")

    def _aggregation(
        self,
        function: constants.Function,
        node: ast.GeneratorExp | ast.ListComp,
        *,
        decides: bool = False,
    ) -> Aggregation:
        planner, loops = self, list[Loop]()
        for clause in node.generators:
            if clause.is_async:
                raise NotJudgeableError("async")
            items = planner._items(clause.iter)
            target, variables = planner._target(clause.target, items)
            planner = _Planner(planner.scope.with_variables(variables))
            loops.append(Loop(target, items, [planner._condition(test) for test in clause.ifs]))
        read = planner._condition if decides else planner._expression
        return Aggregation(function, read(node.elt), loops)

    def _items(self, node: ast.expr) -> Expression:
        """Return the values that a loop iterates over: constants, or a list from the program."""
        try:
            items = trusted_functions.items(node, self.scope.shadowed)
        except NotConstantError:
            pass
        else:
            if not isinstance(items, range) and not all(map(is_literal, items)):
                raise NotJudgeableError("values that cannot be sent")
            return Constant(items)
        expression = self._expression(node)
        match expression:
            case Query(source=source):
                return replace(expression, source=f"list({source})")
            case LoopVariable():
                return expression
        raise NotJudgeableError(type(node).__name__)

    def _target(self, node: ast.expr, items: Expression) -> tuple[Target, dict[str, LoopVariable]]:
        match node:
            case ast.Name(id=name) if not constants.is_builtin_name(name):
                return name, {name: LoopVariable(name, items)}
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                read = [self._target(part, items) for part in parts]
                variables = {name: item for _, inner in read for name, item in inner.items()}
                return tuple(target for target, _ in read), variables
        raise NotJudgeableError(type(node).__name__)

    def _query(self, node: ast.expr) -> Query:
        if not self.scope.is_answer(node):
            raise NotJudgeableError(type(node).__name__)
        return self.scope.query(node)
