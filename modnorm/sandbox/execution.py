"""Runs one program in a jail and judges it."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.errors import EngineError, InvalidInputError
from modnorm.sandbox.jail.interpreter import EXIT_MEMORY
from modnorm.sandbox.jail.policy import End, Report
from modnorm.sandbox.judge import TooMuchWorkError, holds
from modnorm.sandbox.plan import Require, Run, TestPlan, plan_test
from modnorm.sandbox.program import Limits, Outcome, Program, Verdict
from modnorm.sandbox.session import Session, StoppedError
from modnorm.sandbox.zygote import Zygote

MAX_TESTS = 2**17
"""Longest tests of a program, in characters: the trusted side reads and computes with them."""

_SHOWN = 200
"""Characters of a test that errors repeat."""


def plan_tests(program: Program) -> tuple[TestPlan, ...]:
    """Take a program's tests apart.

    Raises:
        InvalidInputError: a test is not Python, or self-reported and not trusted; or all of them
            are longer than MAX_TESTS.
    """
    if sum(map(len, program.tests)) > MAX_TESTS:
        raise InvalidInputError(
            f"have more than {MAX_TESTS} characters in all, which no tests may", field="tests"
        )
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


def execute(zygote: Zygote, program: Program) -> Outcome:
    """Run a program and judge its answers.

    Args:
        zygote: The jail.
        program: What to run.

    Raises:
        InvalidInputError: a test cannot be judged; nothing ran.
        EngineError: the sandbox failed. This is no verdict.
    """
    plans = plan_tests(program)
    progress = _Progress()
    began = time.monotonic()
    stopped: StoppedError | None = None
    with Session(zygote, program.limits) as session:
        try:
            _run(session, program.sources, plans, progress)
        except StoppedError as error:
            stopped = error
    verdict, detail = _verdict(stopped, session.report, program.limits)
    return Outcome(
        verdict=verdict,
        detail=detail,
        tests_passed=progress.tests_passed,
        self_reported=progress.self_reported,
        printed=session.report.printed,
        cpu_seconds=session.report.cpu_seconds,
        wall_seconds=time.monotonic() - began,
    )


def _run(
    session: Session, sources: Sequence[str], plans: Sequence[TestPlan], progress: _Progress
) -> None:
    """Run the sources, then the tests up to the first that does not hold.

    Raises:
        StoppedError: a test does not hold, or the program is over.
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


def _step(session: Session, step: Run | Require) -> bool:
    """Run statements, or return whether a condition holds."""
    if isinstance(step, Require):
        return holds(step.condition, session.ask)
    session.run(step.source)
    return True


def _verdict(stopped: StoppedError | None, report: Report, limits: Limits) -> tuple[Verdict, str]:
    """Combine what the conversation came to with how the process ended.

    Raises:
        EngineError: the fences did not hold up.
    """
    if report.end is End.SETUP:
        raise EngineError(f"the fences did not come up: {report.printed}")
    if report.end is End.OUTPUT:
        return Verdict.OUTPUT, f"more than {limits.output_bytes} bytes printed"
    if stopped is None:
        return Verdict.PASSED, ""
    if stopped.verdict is not None:
        return stopped.verdict, stopped.detail
    return _of_end(report, limits, stopped.detail)


def _of_end(report: Report, limits: Limits, otherwise: str) -> tuple[Verdict, str]:
    """Say what came of a program that stopped answering."""
    match report.end:
        case End.WALL:
            return Verdict.TIMEOUT, f"not done after {limits.wall_seconds:g} s"
        case End.SIGNAL:
            return _killed(report, limits)
        case End.EXIT if report.code == EXIT_MEMORY:
            return Verdict.MEMORY, "MemoryError"
        case End.EXIT:
            return Verdict.FAILED, f"the program ended itself with exit code {report.code}"
    return Verdict.FAILED, otherwise


def _killed(report: Report, limits: Limits) -> tuple[Verdict, str]:
    """Tell a kill by the kernel for CPU time from one for memory, and from a crash."""
    if report.code == signal.SIGXCPU or report.cpu_seconds >= limits.wall_seconds:
        return Verdict.TIMEOUT, f"{report.cpu_seconds:.1f} s of CPU time"
    if report.code == signal.SIGKILL:
        return Verdict.MEMORY, "killed by the kernel: out of memory"
    return Verdict.FAILED, f"the program was ended by {_name(report.code)}"


def _name(number: int) -> str:
    """Return what a signal is called; most of those for real time have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
