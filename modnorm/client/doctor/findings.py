"""Findings of checks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from modnorm.errors import ModnormError


class Verdict(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A feature that not everybody needs works badly or not at all."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""


Check = Callable[[], Finding]


def ok(check: str, detail: str) -> Finding:
    """Return that all is well."""
    return Finding(check, Verdict.OK, detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Return that something is not as it should be."""
    return Finding(check, Verdict.WARNING, detail, remedy)


def broken(check: str, detail: str, remedy: str) -> Finding:
    """Return that something does not work."""
    return Finding(check, Verdict.BROKEN, detail, remedy)


def examine(checks: Sequence[tuple[str, Check]]) -> Iterator[Finding]:
    """Yield the finding of each check; a check that raises is a finding, too."""
    for name, check in checks:
        try:
            yield check()
        except ModnormError as error:
            yield broken(name, error.message, error.remedy or "fix the cause")
        except Exception as error:  # noqa: BLE001 - a broken installation raises anything
            detail = f"{type(error).__name__}: {error}"
            yield broken(name, detail, "install modnorm anew; report this if it stays")
