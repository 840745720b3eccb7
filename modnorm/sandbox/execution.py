"""Runs one program in a jail and judges it."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.errors import EngineError, InvalidInputError
from modnorm.sandbox.jail.interpreter import EXIT_MEMORY
from modnorm.sandbox.jail.jail_messages import EndReason, WardenReport
from modnorm.sandbox.judge import TooMuchWorkError, holds
from modnorm.sandbox.planning import RequireCondition, RunStatements, TestPlan, plan_test
from modnorm.sandbox.program import Limits, Program, ProgramOutcome, Verdict
from modnorm.sandbox.session import ProgramSession, StoppedError
from modnorm.sandbox.zygote_client import ZygoteClient

MAX_TESTS = 2**17
"""Most characters of a program's tests: the trusted process parses and evaluates them."""

_SHOWN = 200
"""Characters of a test that errors repeat."""


def plan_tests(program: Program) -> tuple[TestPlan, ...]:
    """Return the plan of each test of a program.

    Raises:
        InvalidInputError: a test is not Python, only the program could report its outcome and
            that is not trusted, or all tests together are longer than MAX_TESTS.
    """
    if sum(map(len, program.tests)) > MAX_TESTS:
        raise InvalidInputError(f"the tests have more than {MAX_TESTS} characters", field="tests")
    plans = []
    for index, test in enumerate(program.tests):
        try:
            plan = plan_test(test)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidInputError(f"not Python: {error}", field=f"tests[{index}]") from error
        if not plan.judged and not program.trust_self_report:
            raise InvalidInputError(
                f"only the program itself could report whether it holds: {_shown(test)}",
                field=f"tests[{index}]",
                remedy="write it as `assert CALL == VALUE`, or set trust_self_report",
            )
        plans.append(plan)
    return tuple(plans)


def _shown(test: str) -> str:
    text = " ".join(test.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclass
class _Progress:
    tests_passed: int = 0
    self_reported: int = 0


def execute(zygote: ZygoteClient, program: Program) -> ProgramOutcome:
    """Run a program and return its verdict.

    Raises:
        InvalidInputError: a test cannot be judged; nothing ran.
        EngineError: the sandbox failed. This is no verdict.
    """
    plans = plan_tests(program)
    progress = _Progress()
    began = time.monotonic()
    stopped: StoppedError | None = None
    with ProgramSession(zygote, program.limits) as session:
        try:
            _run(session, program.sources, plans, progress)
        except StoppedError as error:
            stopped = error
    verdict, detail = _verdict(stopped, session.report, program.limits)
    return ProgramOutcome(
        verdict=verdict,
        detail=detail,
        tests_passed=progress.tests_passed,
        self_reported=progress.self_reported,
        printed=session.report.printed,
        cpu_seconds=session.report.cpu_seconds,
        wall_seconds=time.monotonic() - began,
    )


def _run(
    session: ProgramSession,
    sources: Sequence[str],
    plans: Sequence[TestPlan],
    progress: _Progress,
) -> None:
    """Run the sources, then the tests up to the first that fails.

    Raises:
        StoppedError: a test failed, or the program ended.
    """
    for source in sources:
        session.run(source)
    for index, plan in enumerate(plans):
        try:
            held = all(_step(session, step) for step in plan.steps)
        except TooMuchWorkError as error:
            detail = f"test {index} takes too much work to judge"
            raise StoppedError(Verdict.FAILED, detail) from error
        if not held:
            raise StoppedError(Verdict.FAILED, f"test {index} does not hold")
        progress.tests_passed += 1
        progress.self_reported += not plan.judged


def _step(session: ProgramSession, step: RunStatements | RequireCondition) -> bool:
    """Run statements, or return whether a condition holds."""
    if isinstance(step, RequireCondition):
        return holds(step.condition, session.ask)
    session.run(step.source)
    return True


def _verdict(
    stopped: StoppedError | None, report: WardenReport, limits: Limits
) -> tuple[Verdict, str]:
    """Return the verdict and its detail, from the session's outcome and the process's end.

    Raises:
        EngineError: the isolation was not set up.
    """
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
    return Verdict.FAILED, f"the program was ended by {_signal_name(report.code)}"


def _signal_name(number: int) -> str:
    """Return a signal's name, or its number: most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
