"""A program to judge, its limits, and its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from modnorm.errors import InvalidInputError

MEBIBYTE = 2**20


class Verdict(StrEnum):
    """The verdict on a program. A sandbox that fails gives none: it raises EngineError."""

    PASSED = "passed"
    FAILED = "failed"
    """A test failed, or the program raised or ended itself."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """The program printed more than allowed, or sent a larger answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one program. Each has a maximum, so that no caller can exhaust a host.

    Time limits exclude the time that a program waits for a core.
    """

    step_seconds: float = 5.0
    """Wall time of each source and each answer."""
    wall_seconds: float = 30.0
    memory_bytes: int = 512 * MEBIBYTE
    """Address space beyond that of an idle interpreter."""
    scratch_bytes: int = 16 * MEBIBYTE
    """Size of the working directory, if it is writable."""
    output_bytes: int = MEBIBYTE
    """Printed bytes of both streams together; also the size of the largest answer."""
    tasks: int = 32
    """Threads of the program."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            largest = _LARGEST[field.name]
            if not 0 < value <= largest:
                raise InvalidInputError(
                    f"{value} is not above 0 and at most {largest}", field=f"limits.{field.name}"
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
    """Untrusted source and the tests that judge it, MBPP style."""

    sources: Sequence[str]
    """Run once each, in order, in one namespace: set-up code and solution."""
    tests: Sequence[str]
    """Statements, run in order in the same namespace; all must hold."""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """A verdict and its details."""

    verdict: Verdict
    detail: str
    tests_passed: int
    printed: str
    cpu_seconds: float
    wall_seconds: float

    @property
    def passed(self) -> bool:
        """Whether every test held."""
        return self.verdict is Verdict.PASSED
