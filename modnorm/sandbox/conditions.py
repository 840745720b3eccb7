"""The syntax tree of a test's condition: constants, queries to the program, operations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modnorm.sandbox import constants


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the caller knows without the program."""

    value: object


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """The value of a loop's variable."""

    name: str
    items: "Expression"
    """The values that the loop iterates over."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression that the program evaluates."""

    source: str
    variables: tuple[str, ...] = ()
    """Loop variables in the source; their values are sent with the query."""
    functions: frozenset[str] = field(default=frozenset(), compare=False)
    """Names in the source that the program defines."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A trusted function of constants and answers."""

    function: constants.Function
    arguments: Sequence["Expression"]
    keywords: Sequence[tuple[str, "Expression"]] = ()
    numeric: bool = True
    """Whether the function takes numbers only, whose size is then bounded."""


@dataclass(frozen=True, slots=True)
class ComparisonChain:
    """A chain of comparisons; `operators[i]` lies between operands i and i + 1."""

    operands: Sequence["Expression"]
    operators: Sequence[constants.Comparison]


@dataclass(frozen=True, slots=True)
class BooleanOperation:
    """`and` (if `every`) or `or` of conditions, evaluated from the left until decided."""

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
    """Whether any part of an expression is a query."""
    return isinstance(expression, Query) or any(map(needs_program, _parts(expression)))


def has_constant(expression: Expression) -> bool:
    """Whether part of an expression is a constant, which the program never sees."""
    match expression:
        case Constant():
            return True
        case LoopVariable(items=values) | Aggregation(element=values):
            return has_constant(values)
        case FunctionCall(arguments=arguments, keywords=keywords):
            return any(map(has_constant, (*arguments, *(value for _, value in keywords))))
    return False


def program_functions(expression: Expression) -> frozenset[str]:
    """Return the names of the program's functions that an expression depends on."""
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
