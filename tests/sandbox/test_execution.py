"""Harmless programs: the abilities of correct ones, and the verdicts on wrong ones."""

import os
import resource
import textwrap

import pytest

from modnorm.sandbox import Limits, Program, Verdict, session
from tests.faults import error_at

ROWS = {
    "arithmetic": ("def add(a, b): return a + b", ["assert add(1, 2) == 3"]),
    "several tests share a namespace": (
        "seen = []\ndef see(x):\n    seen.append(x)\n    return len(seen)",
        ["assert see('a') == 1", "assert see('b') == 2", "assert seen == ['a', 'b']"],
    ),
    "set-up after the solution": (
        ("class Node:\n    def __init__(self, v): self.v, self.left = v, None\n"
        "def depth(n): return 0 if n is None else 1 + depth(n.left)"),
        ["root = Node(1)\nroot.left = Node(2)\nassert depth(root) == 2"],
    ),
    "equal across types": ("def f(): return 1.0", ["assert f() == 1", "assert f() == True"]),
    "nested": ("def f(): return {'a': [(1, {2}), b'x', None]}",
               ["assert f() == {'a': [(1, {2}), b'x', None]}"]),
    "named tuple": (("from collections import namedtuple\nP = namedtuple('P', 'x y')\n"
                    "def f(): return P(1, 2)"), ["assert f() == (1, 2)"]),
    "counter": ("from collections import Counter\ndef f(t): return Counter(t)",
                ["assert f('aab') == {'a': 2, 'b': 1}", "assert f('a') == Counter(['a'])"]),
    "default and ordered dict": (
        ("from collections import defaultdict, OrderedDict\n"
        "def f():\n    d = defaultdict(int); d[1] += 1; return d\n"
        "def g(): return OrderedDict(a=1)"),
        ["assert f() == {1: 1}", "assert g() == {'a': 1}"]),
    "views": ("def f(): return {'a': 1}.keys()", ["assert f() == {'a'}"]),
    "generator": ("def f(): yield from (3, 1)", ["assert sorted(f()) == [1, 3]"]),
    "exact": (("from fractions import Fraction\nfrom decimal import Decimal\n"
              "def f(): return Fraction(1, 2)\ndef g(): return Decimal('0.1')"),
              ["assert f() == 0.5", "assert g() == Decimal('0.1')", "assert g() != 0.1"]),
    "close": ("import math\ndef f(x): return math.sqrt(x)",
              ["assert math.isclose(f(2), 1.41421, rel_tol=1e-4)",
               "assert abs(f(2) - 1.41421) < 1e-4", "assert round(f(2), 2) == 1.41"]),
    "complex": ("import cmath\ndef f(z): return cmath.sqrt(z)", ["assert f(-1) == 1j"]),
    "not a number": ("def f(): return float('inf')", ["assert f() == float('inf')"]),
    "large integers": ("def f(n): return 1 << n", [f"assert f(20000) == {hex(1 << 20000)}"]),
    "surrogates": ("def f(): return '\\ud800é'", ["assert f() == '\\ud800é'"]),
    "truth": ("def f(x): return x > 1", ["assert f(2)", "assert not f(1)",
                                         "assert f(2) and not f(0)", "assert f(2) is True"]),
    "match object": ("import re\ndef f(t): return re.match('a', t)",
                     ["assert f('ab')", "assert not f('b')", "assert f('b') is None"]),
    "named like a built-in": ("def sum(a, b): return a * b", ["assert sum(2, 3) == 6"]),
    "size of an object": ("import sys\ndef f(t): return sys.getsizeof(t)",
                          ["assert f((1, 'a')) == sys.getsizeof((1, 'a'))"]),
    "dataclass": (("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
                  "def f(): return P(3).x"), ["assert f() == 3"]),
    "deep recursion": (("import sys\nsys.setrecursionlimit(20000)\n"
                       "def f(n): return 0 if n == 0 else 1 + f(n - 1)"),
                       ["assert f(15000) == 15000"]),
    "threads": (("from concurrent.futures import ThreadPoolExecutor\n"
                "def f():\n    with ThreadPoolExecutor(8) as p: return sum(p.map(abs, [9]))"),
                ["assert f() == 9"]),
    "event loop": (("import asyncio\nasync def g():\n    await asyncio.sleep(0); return 7\n"
                   "def f(): return asyncio.run(g())"), ["assert f() == 7"]),
    "memory within bounds": ("def f(): return sum(bytearray(200 * 2**20))", ["assert f() == 0"]),
    "a second of work": ("def f(): return sum(i * i for i in range(5 * 10**6))",
                         ["assert f() == 41666654166667500000"]),
    "prints": ("def f():\n    print('hello')\n    return 1", ["assert f() == 1"]),
    "imports of the library": (("import sqlite3, xml.dom, zoneinfo, email.message\n"
                               "def f(): return sqlite3.connect(':memory:')"
                               ".execute('select 2').fetchone()[0]"), ["assert f() == 2"]),
    "windows line ends": ("def f():\r\n    return 1\r\n", ["assert f() == 1\r\n"]),
}  # fmt: skip


@pytest.mark.parametrize(("solution", "tests"), ROWS.values(), ids=ROWS)
def test_a_correct_program_passes(sandbox, solution, tests):
    outcome = sandbox.execute(Program([solution], tests))
    assert outcome.verdict is Verdict.PASSED, outcome
    assert outcome.tests_passed == len(tests)


@pytest.mark.parametrize(
    ("solution", "test"),
    [
        ("def f(): return 2", "assert f() == 3"),
        ("def f(): return '3'", "assert f() == 3"),
        ("def f(): return (1, 2)", "assert f() == [1, 2]"),
        ("def f(): return [1, 2].__iter__()", "assert f() == [1, 2]"),
        ("def f(): return 'a'", "assert f() < 3"),
        ("def f(): return None", "assert abs(f() - 3) < 1"),
        ("def f(): return float('nan')", "assert abs(f() - 3) < 1"),
        ("def f(): return False", "assert f()"),
        ("def f(x): return x", "assert f() == 1"),
        ("def g(): return 1", "assert f() == 1"),
        ("def f(): return object()", "assert f() == 1"),
    ],
)
def test_a_wrong_program_fails(sandbox, solution, test):
    outcome = sandbox.execute(Program([solution], [test]))
    assert outcome.verdict is Verdict.FAILED, outcome


def test_a_program_may_write_to_its_scratch_directory(sandbox):
    solution = """
        from pathlib import Path
        def f(text):
            Path("notes").mkdir()
            Path("notes/one").write_text(text)
            return Path("notes/one").read_text()
    """
    outcome = sandbox.execute(Program([textwrap.dedent(solution)], ["assert f('x') == 'x'"]))
    assert outcome.passed == sandbox.measure().writable_scratch


def test_chance_and_hashing_repeat(sandbox):
    source = "import random\ndef f(): return random.random(), hash('a'), list({'x', 'y', 'z'})"
    seen = {sandbox.execute(Program([source, "print(f())"], [])).printed for _ in range(3)}
    assert len(seen) == 1


def test_the_first_failure_is_named_and_ends_the_program(sandbox):
    program = Program(
        ["calls = []\ndef f(x):\n    print('called', x)\n    return x"],
        ["assert f(1) == 1", "assert f(2) == 0", "assert f(3) == 3"],
    )
    outcome = sandbox.execute(program)
    assert (outcome.verdict, outcome.tests_passed) == (Verdict.FAILED, 1)
    assert outcome.detail == "test 1 does not hold"
    assert outcome.printed == "called 1\ncalled 2\n"


def test_tests_that_cannot_be_judged_are_refused(sandbox):
    test = "for x in range(3):\n    assert f(x) == x"
    program = Program(["def f(x): return x"], ["assert f(1) == 1", test])
    with error_at("tests[1]", "with constants: for x in range.3.: assert f.x. == x"):
        sandbox.execute(program)


@pytest.mark.parametrize(
    ("tests", "field"),
    [(["assert f() == " + "-" * 50_000 + "1"], "tests[0]"), (["assert f()"] * 20_000, "tests")],
    ids=["nested too deep to be read", "too long"],
)
def test_tests_that_cannot_be_read_are_refused(sandbox, tests, field):
    with error_at(field):
        sandbox.execute(Program([], tests))


def test_the_whole_program_is_bounded(sandbox):
    limits = Limits(step_seconds=5, wall_seconds=1)
    sources = ["import time\ntime.sleep(0.6)"] * 3
    assert sandbox.execute(Program(sources, [], limits)).verdict is Verdict.TIMEOUT


def test_a_program_that_ends_after_a_wait_for_a_core_did_not_take_too_long(sandbox, monkeypatch):
    """The kernel's count of its wait goes with the process."""
    counted = iter([100.0])
    monkeypatch.setattr(session, "cpu_wait_seconds", lambda _: next(counted, 0.0))
    program = Program(["import time, os\ntime.sleep(0.3)\nos._exit(3)"], ["assert f() == 1"])
    outcome = sandbox.execute(program)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.detail == "the program ended itself with exit code 3"


@pytest.fixture
def many_files():
    """Open more files than `select` can watch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, hard))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_that_ends_itself_has_a_verdict_among_many_open_files(sandbox, many_files):
    outcome = sandbox.execute(Program(["import os\nos._exit(3)"], ["assert f() == 1"]))
    assert outcome.detail == "the program ended itself with exit code 3"
