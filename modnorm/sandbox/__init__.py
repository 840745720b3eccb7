"""Runs untrusted Python programs and judges them; see `docs/sandbox.md`."""

from modnorm.sandbox.isolation import Guarantee, Isolation, Runner, Sandbox
from modnorm.sandbox.jail.jail_messages import Mechanism
from modnorm.sandbox.program import Limits, Program, ProgramOutcome, Verdict

__all__ = [
    "Guarantee",
    "Isolation",
    "Limits",
    "Mechanism",
    "Program",
    "ProgramOutcome",
    "Runner",
    "Sandbox",
    "Verdict",
]
