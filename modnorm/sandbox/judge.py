"""Whether a test's condition holds, given what the program answers."""

from collections.abc import Callable

from modnorm.sandbox.closed import bounded_number
from modnorm.sandbox.plan import Applied, Asked, Compared, Expression, Joined, Known, Negated

Ask = Callable[[str], object]
"""Returns the program's plain value of an expression."""


def holds(condition: Expression, ask: Ask) -> bool:
    """Return the truth of a condition; the program is asked in Python's order of evaluation.

    An operation that the values do not support (an order between a number and a text) is false.
    """
    try:
        return _truth(condition, ask)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return False


def _truth(condition: Expression, ask: Ask) -> bool:
    match condition:
        case Joined(every=True, conditions=conditions):
            return all(_truth(each, ask) for each in conditions)
        case Joined(conditions=conditions):
            return any(_truth(each, ask) for each in conditions)
        case Negated(condition=inner):
            return not _truth(inner, ask)
    return bool(_value(condition, ask))


def _value(expression: Expression, ask: Ask) -> object:
    match expression:
        case Known(value=value):
            return value
        case Asked(source=source):
            return ask(source)
        case Applied(function=function, arguments=arguments, keywords=keywords):
            numbers = [bounded_number(_value(each, ask)) for each in arguments]
            named = {name: bounded_number(_value(each, ask)) for name, each in keywords}
            return function(*numbers, **named)
        case Compared():
            return _compare(expression, ask)
    return _truth(expression, ask)


def _compare(comparison: Compared, ask: Ask) -> bool:
    left = _value(comparison.operands[0], ask)
    for operator, operand in zip(comparison.operators, comparison.operands[1:], strict=True):
        right = _value(operand, ask)
        if not operator(left, right):
            return False
        left = right
    return True
