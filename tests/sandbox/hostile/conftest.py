"""Fixtures for hostile programs: tests that they cannot guess, and tight limits."""

import textwrap

import pytest

from modnorm.sandbox import Limits, Program, Verdict

LIMITS = Limits(
    step_seconds=2.0,
    wall_seconds=6.0,
    memory_bytes=128 * 2**20,
    scratch_bytes=2**20,
    output_bytes=2**16,
    tasks=16,
)
TESTS = ("assert f(3) == 9173", "assert f(4) == [2, 'unguessable']", "assert f(5) == {'k': 1.5}")
HONEST = "def f(x): return {3: 9173, 4: [2, 'unguessable'], 5: {'k': 1.5}}[x]"


@pytest.fixture(scope="session")
def limits():
    """The limits of hostile programs."""
    return LIMITS


@pytest.fixture(scope="session")
def tests():
    """The tests that no hostile program passes."""
    return TESTS


@pytest.fixture(scope="session")
def honest():
    """A program that passes the tests."""
    return HONEST


@pytest.fixture(scope="session")
def attack(sandbox):
    """Execute a hostile program, given its indented source."""

    def execute(source, limits=LIMITS):
        return sandbox.execute(Program([textwrap.dedent(source)], TESTS, limits))

    return execute


@pytest.fixture(autouse=True)
def _next_honest_program_passes(sandbox):
    yield
    outcome = sandbox.execute(Program([HONEST], TESTS))
    assert outcome.verdict is Verdict.PASSED, outcome
