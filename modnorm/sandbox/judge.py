"""Decides whether a test's condition holds, from the program's answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
)
from modnorm.sandbox.constants import bounded_number
from modnorm.sandbox.value_decoding import is_literal, size

Ask = Callable[[str], object]
"""Asks the program for an expression's value; returns a plain value."""

MAX_WORK = 2**20
"""Largest work of a condition's loops, in units of about a microsecond."""
_LOOP_WORK = 4
_WORDS = 8
"""Machine words of a value that cost one unit of work to read."""

_Scope = Mapping[str, tuple[object, int]]
"""Values of the loop variables, each with the cost of reading it."""


class TooMuchWorkError(Exception):
    """The loops of a condition cost more than MAX_WORK."""


def holds(condition: Expression, ask: Ask) -> bool:
    """Return the truth of a condition; queries follow Python's order of evaluation.

    An operation that the values do not support, such as `1 < "a"`, counts as false.

    Raises:
        TooMuchWorkError: the condition's loops over the program's values are too long.
    """
    try:
        return _Judge(ask).truth(condition, {})
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError):
        return False


class _Judge:
    """Evaluates one condition."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._work = MAX_WORK
        self._costs: dict[int, int] = {}

    def truth(self, condition: Expression, scope: _Scope) -> bool:
        match condition:
            case BooleanOperation(every=True, conditions=conditions):
                return all(self.truth(each, scope) for each in conditions)
            case BooleanOperation(conditions=conditions):
                return any(self.truth(each, scope) for each in conditions)
            case Negation(condition=inner):
                return not self.truth(inner, scope)
        return bool(self._value(condition, scope))

    def _value(  # noqa: PLR0911  # one return for each form
        self, expression: Expression, scope: _Scope
    ) -> object:
        match expression:
            case Constant(value=value):
                self._spend(self._constant_cost(expression) if scope else 0)
                return value
            case LoopVariable(name=name):
                value, cost = scope[name]
                self._spend(cost)
                return value
            case Query(source=source, variables=names):
                return self._ask(_with_values(source, {name: scope[name][0] for name in names}))
            case FunctionCall():
                return self._apply(expression, scope)
            case ComparisonChain():
                return self._compare(expression, scope)
            case Aggregation(function=function, element=element, loops=loops):
                return function(self._elements(element, loops, scope))
        return self.truth(expression, scope)

    def _apply(self, call: FunctionCall, scope: _Scope) -> object:
        bounded = bounded_number if call.numeric else _unchanged
        values = [bounded(self._value(argument, scope)) for argument in call.arguments]
        named = {name: bounded(self._value(value, scope)) for name, value in call.keywords}
        return call.function(*values, **named)

    def _compare(self, comparison: ComparisonChain, scope: _Scope) -> bool:
        left = self._value(comparison.operands[0], scope)
        for operator, operand in zip(comparison.operators, comparison.operands[1:], strict=True):
            right = self._value(operand, scope)
            if not operator(left, right):
                return False
            left = right
        return True

    def _elements(
        self, element: Expression, loops: Sequence[Loop], scope: _Scope
    ) -> Iterator[object]:
        if not loops:
            yield self._value(element, scope)
            return
        loop, *inner = loops
        for item in _iterable(self._value(loop.items, scope)):
            self._spend(_LOOP_WORK)
            variables = {name: (value, _cost(value)) for name, value in _bind(loop.target, item)}
            self._spend(sum(cost for _, cost in variables.values()))
            bound = {**scope, **variables}
            if all(self.truth(condition, bound) for condition in loop.conditions):
                yield from self._elements(element, inner, bound)

    def _constant_cost(self, constant: Constant) -> int:
        if id(constant) not in self._costs:
            self._costs[id(constant)] = _cost(constant.value)
        return self._costs[id(constant)]

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise TooMuchWorkError


def _cost(value: object) -> int:
    return 1 + size(value) // _WORDS


def _unchanged(value: object) -> object:
    return value


def _iterable(values: object) -> Iterable[object]:
    if isinstance(values, Iterable):
        return values
    raise TypeError("not iterable")


def _bind(target: Target, value: object) -> Iterator[tuple[str, object]]:
    """Yield the variables that a loop assigns, with their values."""
    if isinstance(target, str):
        yield target, value
        return
    for part, item in zip(target, _iterable(value), strict=True):
        yield from _bind(part, item)


def _with_values(source: str, variables: Mapping[str, object]) -> str:
    """Return the source of an expression with its variables bound to values.

    Raises:
        TypeError: a value cannot be written as a literal.
    """
    if not variables:
        return source
    if not all(map(is_literal, variables.values())):
        raise TypeError("a value that cannot be sent")
    literals = ", ".join(map(repr, variables.values()))
    return f"(lambda {', '.join(variables)}: {source})({literals})"
