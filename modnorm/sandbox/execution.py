"""Runs one program in a jail and judges it."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from modnorm.errors import EngineError, InvalidInputError
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
    Query,
    Target,
    bounded_number,
)
from modnorm.sandbox.jail.interpreter import EXIT_MEMORY
from modnorm.sandbox.jail.jail_messages import EndReason, WardenReport
from modnorm.sandbox.planning import NotJudgeableError, RequireCondition, Step, plan_test
from modnorm.sandbox.program import Limits, Program, ProgramOutcome, Verdict
from modnorm.sandbox.session import ProgramSession, StoppedError, ZygoteClient
from modnorm.sandbox.trusted_functions import is_literal, size

Ask = Callable[[str], object]

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
                left = self._value(expression.operands[0], scope)
                for operator, operand in zip(
                    expression.operators, expression.operands[1:], strict=True
                ):
                    right = self._value(operand, scope)
                    if not operator(left, right):
                        return False
                    left = right
                return True
            case Aggregation(function=function, element=element, loops=loops):
                return function(self._elements(element, loops, scope))
        return self.truth(expression, scope)

    def _apply(self, call: FunctionCall, scope: _Scope) -> object:
        bounded = bounded_number if call.numeric else _unchanged
        values = [bounded(self._value(argument, scope)) for argument in call.arguments]
        named = {name: bounded(self._value(value, scope)) for name, value in call.keywords}
        return call.function(*values, **named)

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
    """Return the source of an expression with its variables bound to values."""
    if not variables:
        return source
    if not all(map(is_literal, variables.values())):
        raise TypeError("a value that cannot be sent")
    literals = ", ".join(map(repr, variables.values()))
    return f"(lambda {', '.join(variables)}: {source})({literals})"


MAX_TESTS = 2**17
"""Most characters of a program's tests: the trusted process parses and evaluates them."""

_SHOWN = 200


def plan_tests(program: Program) -> tuple[Sequence[Step], ...]:
    """Return the steps of each test; refuse tests that this process cannot judge."""
    if sum(map(len, program.tests)) > MAX_TESTS:
        raise InvalidInputError(f"the tests have more than {MAX_TESTS} characters", field="tests")
    plans = []
    for index, test in enumerate(program.tests):
        try:
            plans.append(plan_test(test))
        except NotJudgeableError as error:
            text = " ".join(test.split())
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise InvalidInputError(
                f"only the program itself could report whether it holds: {shown}",
                field=f"tests[{index}]",
                remedy="write it as `assert CALL == VALUE`",
            ) from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidInputError(f"not Python: {error}", field=f"tests[{index}]") from error
    return tuple(plans)


def execute(zygote: ZygoteClient, program: Program) -> ProgramOutcome:
    """Run a program and return its verdict."""
    plans = plan_tests(program)
    passed: list[int] = []
    began = time.monotonic()
    stopped: StoppedError | None = None
    with ProgramSession(zygote, program.limits) as session:
        try:
            _run(session, program.sources, plans, passed)
        except StoppedError as error:
            stopped = error
    verdict, detail = _verdict(stopped, session.report, program.limits)
    return ProgramOutcome(
        verdict=verdict,
        detail=detail,
        tests_passed=len(passed),
        printed=session.report.printed,
        cpu_seconds=session.report.cpu_seconds,
        wall_seconds=time.monotonic() - began,
    )


def _run(
    session: ProgramSession,
    sources: Sequence[str],
    plans: Sequence[Sequence[Step]],
    passed: list[int],
) -> None:
    """Run the sources, then the tests up to the first that fails; note those that pass."""
    for source in sources:
        session.run(source)
    for index, plan in enumerate(plans):
        try:
            held = all(_step(session, step) for step in plan)
        except TooMuchWorkError as error:
            detail = f"test {index} takes too much work to judge"
            raise StoppedError(Verdict.FAILED, detail) from error
        if not held:
            raise StoppedError(Verdict.FAILED, f"test {index} does not hold")
        passed.append(index)


def _step(session: ProgramSession, step: Step) -> bool:
    if isinstance(step, RequireCondition):
        return holds(step.condition, session.ask)
    session.run(step.source)
    return True


def _verdict(
    stopped: StoppedError | None, report: WardenReport, limits: Limits
) -> tuple[Verdict, str]:
    """Return the verdict and its detail, from the session's outcome and the process's end."""
    if report.end is EndReason.SETUP:
        raise EngineError(f"the isolation of a program was not set up: {report.printed}")
    if report.end is EndReason.OUTPUT:
        return Verdict.OUTPUT, f"more than {limits.output_bytes} bytes printed"
    if stopped is None:
        return Verdict.PASSED, ""
    if stopped.verdict is not None:
        return stopped.verdict, stopped.detail
    return _verdict_of_end(report, limits, stopped.detail)


def _verdict_of_end(report: WardenReport, limits: Limits, fallback: str) -> tuple[Verdict, str]:
    """Return the verdict of a program that stopped answering."""
    match report.end:
        case EndReason.WALL:
            return Verdict.TIMEOUT, f"not done after {limits.wall_seconds:g} s"
        case EndReason.SIGNAL:
            return _verdict_of_signal(report, limits)
        case EndReason.EXIT if report.code == EXIT_MEMORY:
            return Verdict.MEMORY, "MemoryError"
        case EndReason.EXIT:
            return Verdict.FAILED, f"the program ended itself with exit code {report.code}"
    return Verdict.FAILED, fallback


def _verdict_of_signal(report: WardenReport, limits: Limits) -> tuple[Verdict, str]:
    """Tell apart a kill by the kernel for CPU time, one for memory, and a crash."""
    if report.code == signal.SIGXCPU or report.cpu_seconds >= limits.wall_seconds:
        return Verdict.TIMEOUT, f"{report.cpu_seconds:.1f} s of CPU time"
    if report.code == signal.SIGKILL:
        return Verdict.MEMORY, "killed by the kernel: out of memory"
    # Most real-time signals have no name.
    names = (each.name for each in signal.Signals if each == report.code)
    name = next(names, f"signal {report.code}")
    return Verdict.FAILED, f"the program was ended by {name}"
