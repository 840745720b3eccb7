"""The meaning of names in a test: constants, loop variables or functions of the program."""

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modnorm.sandbox import constants
from modnorm.sandbox.conditions import LoopVariable, Query
from modnorm.sandbox.constants import NotConstantError


@dataclass(frozen=True, slots=True)
class NameScope:
    """The meaning of names at one point of a test.

    Attributes:
        shadowed: Built-in names that mean functions of the program.
        variables: Variables of the enclosing loops.
    """

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
