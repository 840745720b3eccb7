"""Runs one program in a jail and judges it."""

import signal
import time
from collections.abc import Sequence

from modnorm.errors import EngineError, InvalidInputError, shortened
from modnorm.sandbox.jail.interpreter import EXIT_MEMORY
from modnorm.sandbox.jail.jail_messages import EndReason, WardenReport
from modnorm.sandbox.planning import Ask, Expression, NotJudgeableError, Step, plan_test
from modnorm.sandbox.program import Limits, Program, ProgramOutcome, Verdict
from modnorm.sandbox.session import ProgramSession, StoppedError, ZygoteClient


def holds(condition: Expression, ask: Ask) -> bool:
    """Return the truth of a condition; queries follow Python's order of evaluation.

    An operation that the values do not support, such as `1 < "a"`, counts as false.
    """
    try:
        return bool(condition.value(ask))
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError):
        return False


MAX_TESTS = 2**17
"""Most characters of a program's tests: the trusted process parses and evaluates them."""

_REMEDY = (
    "compare a call with a value, `assert CALL == VALUE`; write out other operators' values; "
    "write `import math` for `from math import sqrt`; move a definition to the set-up code"
)


def _shown(source: str) -> str:
    return shortened(" ".join(source.split()))


def plan_tests(tests: Sequence[str]) -> tuple[Sequence[Step], ...]:
    """Return the steps of each test; refuse tests that this process cannot judge."""
    if sum(map(len, tests)) > MAX_TESTS:
        raise InvalidInputError(f"the tests have more than {MAX_TESTS} characters", field="tests")
    plans = []
    for index, test in enumerate(tests):
        try:
            plans.append(plan_test(test))
        except NotJudgeableError as error:
            text, refused = _shown(test), _shown(str(error))
            part = "" if refused == text else f" (refused: {refused})"
            raise InvalidInputError(
                f"not a comparison of calls with constants: {text}{part}",
                field=f"tests[{index}]",
                remedy=_REMEDY,
            ) from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidInputError(f"not Python: {error}", field=f"tests[{index}]") from error
    return tuple(plans)


def execute(zygote: ZygoteClient, program: Program) -> ProgramOutcome:
    """Run the sources, then the tests up to the first that fails; return the verdict."""
    plans = plan_tests(program.tests)
    tests_passed = 0
    began = time.monotonic()
    stopped: StoppedError | None = None
    with ProgramSession(zygote, program.limits) as session:
        try:
            for source in program.sources:
                session.run(source)
            for plan in plans:
                _run_test(session, plan, tests_passed)
                tests_passed += 1
        except StoppedError as error:
            stopped = error
    verdict, detail = _verdict(stopped, session.report, program.limits)
    return ProgramOutcome(
        verdict=verdict,
        detail=detail,
        tests_passed=tests_passed,
        printed=session.report.printed,
        cpu_seconds=session.report.cpu_seconds,
        wall_seconds=time.monotonic() - began,
    )


def _run_test(session: ProgramSession, plan: Sequence[Step], index: int) -> None:
    for step in plan:
        if isinstance(step, str):
            session.run(step)
        elif not holds(step, session.ask):
            raise StoppedError(Verdict.FAILED, f"test {index} does not hold")


def _verdict(
    stopped: StoppedError | None, report: WardenReport, limits: Limits
) -> tuple[Verdict, str]:
    """Return the verdict and its detail, from the session's outcome and the process's end."""
    if report.end == EndReason.SETUP:
        raise EngineError(f"the isolation of a program was not set up: {report.printed}")
    if report.end == EndReason.OUTPUT:
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
