"""A program to judge and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from modnorm.errors import InvalidInputError

MEBIBYTE = 2**20


class Verdict(StrEnum):
    """What came of a program. A sandbox that fails gives none of these: it raises EngineError."""

    PASSED = "passed"
    FAILED = "failed"
    """A test failed, the program raised, or it ended by itself."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """It printed, or answered with, more than allowed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one program. Each has a largest value, so that no caller can exhaust a host.

    What a program waits for a core, while others have them, counts as no time.
    """

    step_seconds: float = 5.0
    """Wall time of each source and each value that a test asks for."""
    wall_seconds: float = 30.0
    """Wall time of the whole program."""
    memory_bytes: int = 512 * MEBIBYTE
    """Address space beyond that of an idle interpreter."""
    scratch_bytes: int = 16 * MEBIBYTE
    """Working directory, where there is a writable one."""
    output_bytes: int = MEBIBYTE
    """Printed, both streams together; and the largest value of a test."""
    tasks: int = 32
    """Threads of the program."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            largest = _LARGEST[each.name]
            if not 0 < value <= largest:
                raise InvalidInputError(
                    f"{value} is not above 0 and at most {largest}", field=f"limits.{each.name}"
                )


_LARGEST = {
    "step_seconds": 600.0,
    "wall_seconds": 600.0,
    "memory_bytes": 8192 * MEBIBYTE,
    "scratch_bytes": 256 * MEBIBYTE,
    "output_bytes": 4 * MEBIBYTE,
    "tasks": 256,
}


@dataclass(frozen=True, slots=True)
class Program:
    """Untrusted source and the tests that judge it, MBPP style.

    Attributes:
        sources: Run once each, in order, in one namespace: set-up code and solution.
        tests: Python statements, run in order in the same namespace; all must hold.
        limits: Bounds of the whole.
        trust_self_report: Accept tests whose outcome only the program itself can report
            (`modnorm.sandbox.planning` says which); a hostile program can forge it.
    """

    sources: Sequence[str]
    tests: Sequence[str]
    limits: Limits = Limits()
    trust_self_report: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict and what it rests on."""

    verdict: Verdict
    detail: str
    """Why, for people: the failed test, the exception, the bound that was reached."""
    tests_passed: int
    """Tests that held before the first that did not."""
    self_reported: int
    """Tests, of those passed, whose outcome the program itself reported."""
    printed: str
    """Tail of what the program printed."""
    cpu_seconds: float
    wall_seconds: float

    @property
    def passed(self) -> bool:
        """Whether every test held."""
        return self.verdict is Verdict.PASSED
