"""The names in a test: which expressions are the program's answers, and which need no program."""

import ast
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modnorm.sandbox import closed
from modnorm.sandbox.closed import NotClosedError
from modnorm.sandbox.expressions import Asked, Variable


@dataclass(frozen=True, slots=True)
class Names:
    """What names mean at one place of a test.

    Attributes:
        shadowed: Built-in names that mean functions of the program.
        variables: Variables of the loops around the place.
    """

    shadowed: frozenset[str]
    variables: Mapping[str, Variable] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, Variable]) -> "Names":
        """Return the names inside one more loop."""
        return replace(self, variables={**self.variables, **variables})

    def ask(self, node: ast.expr) -> Asked:
        """Return an answer of the program as what to ask for."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        variables = tuple(sorted(names & self.variables.keys()))
        own = {name for name in names if name in self.shadowed or not closed.is_known(name)}
        return Asked(ast.unparse(node), variables, frozenset(own.difference(variables)))

    def is_answer(self, node: ast.expr) -> bool:  # noqa: PLR0911  # one a form
        """Whether an expression is the program's answer itself, not a comparison in disguise.

        Answers are calls of functions that are not built in, names, parts of answers, methods of
        answers, and conversions of one answer (`sorted(f(x))`). `all(f(x) == y for ...)` is
        none: whoever computes it learns what is expected, and need only say True.
        """
        match node:
            case ast.Name(id=name):
                return not closed.is_known(name) and name not in self.variables
            case ast.Attribute(value=inner) | ast.UnaryOp(operand=inner):
                return self.is_answer(inner)
            case ast.Subscript(value=inner, slice=part):
                return self.is_answer(inner) and self.is_closed(part)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                answers = [self.is_answer(item) for item in items]
                known = [self.is_closed(item) for item in items]
                return any(answers) and all(map(operator.or_, answers, known))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                return self._is_answering_call(name, arguments, keywords)
            case ast.Call(func=ast.Attribute(value=inner), args=arguments, keywords=keywords):
                return self.is_answer(inner) and self._are_closed(arguments, keywords)
        return False

    def _is_answering_call(
        self, name: str, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> bool:
        if name in self.shadowed:
            return self._are_closed(arguments, keywords)
        if not closed.is_known(name):
            return True
        conversion = name in closed.CONVERSIONS and not keywords and len(arguments) == 1
        return conversion and self.is_answer(arguments[0])

    def _are_closed(self, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
        values = [*arguments, *(each.value for each in keywords)]
        return all(self.is_closed(each) for each in values)

    def is_closed(self, node: ast.expr) -> bool:
        """Whether an expression, a slice included, needs only values that are known here."""
        match node:
            case ast.Slice():
                parts = (node.lower, node.upper, node.step)
                return all(part is None or self.is_closed(part) for part in parts)
            case ast.Name(id=name) if name in self.variables:
                return True
        try:
            closed.evaluate(node, self.shadowed)
        except NotClosedError:
            return False
        return True
