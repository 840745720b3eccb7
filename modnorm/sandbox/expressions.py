"""The parts of a test's condition: which values are known here, and which the program sends."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modnorm.sandbox import closed


@dataclass(frozen=True, slots=True)
class Known:
    """A value that needs no program."""

    value: object


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of a loop's variable."""

    name: str
    items: "Expression"
    """The values that the loop takes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A value that the program is asked for."""

    source: str
    variables: tuple[str, ...] = ()
    """Loop variables in the source; the program is sent their values."""
    functions: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the program in the source."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A trusted function of values, some of which the program is asked for."""

    function: closed.Function
    arguments: Sequence["Expression"]
    keywords: Sequence[tuple[str, "Expression"]] = ()
    numeric: bool = True
    """Whether the function takes numbers alone, which are bounded."""


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


@dataclass(frozen=True, slots=True)
class Loop:
    """`for TARGET in ITEMS if CONDITIONS`."""

    target: "Target"
    items: "Expression"
    conditions: Sequence["Expression"]


@dataclass(frozen=True, slots=True)
class Collected:
    """A trusted function, such as `all` or `list`, of the elements of a comprehension."""

    function: Callable[[Iterable[object]], object]
    element: "Expression"
    loops: Sequence[Loop]


Expression = Known | Variable | Asked | Applied | Compared | Joined | Negated | Collected
Target = str | tuple["Target", ...]


def asks(expression: Expression) -> bool:
    """Return whether the program is asked for any part of a value."""
    return isinstance(expression, Asked) or any(map(asks, _parts(expression)))


def contributes(expression: Expression) -> bool:
    """Return whether part of a value is known here and never sent to the program."""
    match expression:
        case Known():
            return True
        case Variable(items=values) | Collected(element=values):
            return contributes(values)
        case Applied(arguments=arguments, keywords=keywords):
            return any(map(contributes, (*arguments, *(value for _, value in keywords))))
    return False


def functions(expression: Expression) -> frozenset[str]:
    """Return the names of the program that a value depends on."""
    own = expression.functions if isinstance(expression, Asked) else frozenset[str]()
    return own.union(*map(functions, _parts(expression)))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Variable(items=part) | Negated(condition=part):
            yield part
        case Applied(arguments=arguments, keywords=keywords):
            yield from arguments
            yield from (value for _, value in keywords)
        case Compared(operands=parts) | Joined(conditions=parts):
            yield from parts
        case Collected(element=element, loops=loops):
            yield element
            for loop in loops:
                yield loop.items
                yield from loop.conditions
