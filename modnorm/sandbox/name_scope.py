"""The names in a test: which expressions are the program's answers, and which need no program."""

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modnorm.sandbox import constants
from modnorm.sandbox.conditions import LoopVariable, Query
from modnorm.sandbox.constants import NotConstantError


@dataclass(frozen=True, slots=True)
class NameScope:
    """What names mean at one place of a test.

    Attributes:
        shadowed: Built-in names that mean functions of the program.
        variables: Variables of the loops around the place.
    """

    shadowed: frozenset[str]
    variables: Mapping[str, LoopVariable] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, LoopVariable]) -> "NameScope":
        """Return the names inside one more loop."""
        return replace(self, variables={**self.variables, **variables})

    def query(self, node: ast.expr) -> Query:
        """Return an answer of the program as what to ask for."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        variables = tuple(sorted(names & self.variables.keys()))
        own = {
            name for name in names if name in self.shadowed or not constants.is_builtin_name(name)
        }
        return Query(ast.unparse(node), variables, frozenset(own.difference(variables)))

    def is_answer(self, node: ast.expr) -> bool:  # noqa: PLR0911  # one a form
        """Whether an expression is the program's answer itself, not a comparison in disguise.

        Answers are calls of functions that are not built in, names, parts of answers, methods of
        answers, and conversions of one answer (`sorted(f(x))`). `all(f(x) == y for ...)` is
        none: whoever computes it learns what is expected, and need only say True.
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
                known = [self.is_constant(item) for item in items]
                return any(answers) and all(map(operator.or_, answers, known))
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
        values = [*arguments, *(each.value for each in keywords)]
        return all(self.is_constant(each) for each in values)

    def is_constant(self, node: ast.expr) -> bool:
        """Whether an expression, a slice included, needs only values that are known here."""
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
