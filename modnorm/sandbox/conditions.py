"""The parts of a test's condition: which values are known here, and which the program sends."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modnorm.sandbox import constants


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that needs no program."""

    value: object


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """The value of a loop's variable."""

    name: str
    items: "Expression"
    """The values that the loop takes."""


@dataclass(frozen=True, slots=True)
class Query:
    """A value that the program is asked for."""

    source: str
    variables: tuple[str, ...] = ()
    """Loop variables in the source; the program is sent their values."""
    functions: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the program in the source."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A trusted function of values, some of which the program is asked for."""

    function: constants.Function
    arguments: Sequence["Expression"]
    keywords: Sequence[tuple[str, "Expression"]] = ()
    numeric: bool = True
    """Whether the function takes numbers alone, which are bounded."""


@dataclass(frozen=True, slots=True)
class ComparisonChain:
    """A chain of comparisons; `operators[i]` lies between operands i and i + 1."""

    operands: Sequence["Expression"]
    operators: Sequence[constants.Comparison]


@dataclass(frozen=True, slots=True)
class BooleanOperation:
    """`and` (every) or `or` of conditions, from the left until it is decided."""

    every: bool
    conditions: Sequence["Expression"]


@dataclass(frozen=True, slots=True)
class Negation:
    """`not` of a condition."""

    condition: "Expression"


@dataclass(frozen=True, slots=True)
class Loop:
    """`for TARGET in ITEMS if CONDITIONS`."""

    target: "Target"
    items: "Expression"
    conditions: Sequence["Expression"]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A trusted function, such as `all` or `list`, of the elements of a comprehension."""

    function: Callable[[Iterable[object]], object]
    element: "Expression"
    loops: Sequence[Loop]


Expression = (
    Constant
    | LoopVariable
    | Query
    | FunctionCall
    | ComparisonChain
    | BooleanOperation
    | Negation
    | Aggregation
)
Target = str | tuple["Target", ...]


def needs_program(expression: Expression) -> bool:
    """Return whether the program is asked for any part of a value."""
    return isinstance(expression, Query) or any(map(needs_program, _parts(expression)))


def has_constant(expression: Expression) -> bool:
    """Return whether part of a value is known here and never sent to the program."""
    match expression:
        case Constant():
            return True
        case LoopVariable(items=values) | Aggregation(element=values):
            return has_constant(values)
        case FunctionCall(arguments=arguments, keywords=keywords):
            return any(map(has_constant, (*arguments, *(value for _, value in keywords))))
    return False


def program_functions(expression: Expression) -> frozenset[str]:
    """Return the names of the program that a value depends on."""
    own = expression.functions if isinstance(expression, Query) else frozenset[str]()
    return own.union(*map(program_functions, _parts(expression)))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case LoopVariable(items=part) | Negation(condition=part):
            yield part
        case FunctionCall(arguments=arguments, keywords=keywords):
            yield from arguments
            yield from (value for _, value in keywords)
        case ComparisonChain(operands=parts) | BooleanOperation(conditions=parts):
            yield from parts
        case Aggregation(element=element, loops=loops):
            yield element
            for loop in loops:
                yield loop.items
                yield from loop.conditions
