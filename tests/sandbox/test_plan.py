"""Who decides a test, and what the program gets to see of it."""

import time
from fractions import Fraction

import pytest

from modnorm.sandbox.judge import holds
from modnorm.sandbox.plan import Asked, Compared, Known, Require, Run, plan_test


def _asked(test):
    """Sources that the program is asked for, when every comparison holds by accident."""
    sources = []

    def ask(source):
        sources.append(source)
        return 1

    for step in plan_test(test).steps:
        if isinstance(step, Require):
            holds(step.condition, ask)
    return sources


@pytest.mark.parametrize(
    ("test", "asked"),
    [
        ("assert f(3) == 9173", ["f(3)"]),
        ("assert 9173 == f(3)", ["f(3)"]),
        ("assert set(f(3)) == set((4, 5))", ["set(f(3))"]),
        ("assert math.isclose(f(3), 0.5, rel_tol=0.1)", ["f(3)"]),
        ("assert abs(f(3) - 0.5) < 0.1", ["f(3)"]),
        ("assert round(f(3), 2) == 0.5", ["f(3)"]),
        ("assert f(3) + 1 == 2", ["f(3)"]),
        ("assert not f(3)", ["not not (f(3))"]),
        ("assert f(3) == 1 and g(4) == 1", ["f(3)", "g(4)"]),
        ("assert f(3) == 2 and g(4) == 1", ["f(3)"]),
        ("assert f(3)[0] == 2", ["f(3)[0]"]),
        ("assert f(3).strip() == 'a'", ["f(3).strip()"]),
        ("assert (f(1), f(2)) == (3, 4)", ["(f(1), f(2))"]),
        ("assert 0 < f(3) <= 9", ["f(3)"]),
        ("assert f(3) in (1, 2)", ["f(3)"]),
        ("assert sum(10, 15) == 6", ["sum(10, 15)"]),
        ("assert max([1, 2]) == 2", ["max([1, 2])"]),
    ],
)
def test_what_is_expected_never_leaves(test, asked):
    plan = plan_test(test)
    assert plan.judged
    assert _asked(test) == asked


@pytest.mark.parametrize(
    "test",
    [
        "check(f)",
        "for x in (1, 2):\n    assert f(x) == x",
        "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
        "assert f(1) == g(1)",
        "assert f(1) == 2 == g(1) == h(1)",
        "assert all(f(x) == x for x in (1, 2))",
        "assert all([f(1) == 1]) == True",
        "assert len(set(f(1)) ^ {1}) == 0",
        "assert isinstance(f(1), int)",
        "assert re.match('a', f(1))",
        "assert (lambda: f(1) == 1)()",
        "assert math.isclose(f(1), g(1))",
        "assert abs(f(1) - g(1)) < 1",
        "assert True",
        "assert 1 + 1 == 2",
        "x = f(1)",
        "def check():\n    assert f(1) == 1\ncheck()\nassert f(2) == 2",
    ],
)
def test_other_forms_are_self_reported(test):
    plan = plan_test(test)
    assert not plan.judged
    assert plan.steps == (Run(test),)


def test_statements_before_an_assertion_run_in_the_program():
    plan = plan_test("x = f(1)\nassert x == 2")
    assert plan.judged
    assert plan.steps[0] == Run("x = f(1)")
    assert isinstance(plan.steps[1], Require)
    condition = plan.steps[1].condition
    assert isinstance(condition, Compared)
    assert condition.operands == [Asked("x"), Known(2)]


@pytest.mark.parametrize(
    ("test", "answers", "expected"),
    [
        ("assert f() == 1", [1], True),
        ("assert f() == 1", [True], True),
        ("assert f() == 1", ["1"], False),
        ("assert not f() == 1", [2], True),
        ("assert f() == 1 or g() == 1", [2, 1], True),
        ("assert f() < 3", ["a"], False),
        ("assert not f() < 3", ["a"], False),
        ("assert f() is None", [None], True),
        ("assert f() is not None", [None], False),
        ("assert f() not in [1]", [2], True),
        ("assert f() in 3", [2], False),
        ("assert f() * 10 == 30", [[3]], False),
        ("assert f() * 1000000 == 30", ["x" * 1000], False),
        ("assert f() * 2 == 4", [1 << 70000], False),
        ("assert -f() == 4", [4], True),
        ("assert f() / 0 == 1", [1], False),
        ("assert math.isclose(f(), 1.0)", ["x"], False),
        ("assert math.isclose(f(), math.pi, abs_tol=0.01)", [3.14159], True),
    ],
)
def test_conditions_are_decided_here(test, answers, expected):
    remaining = iter(answers)
    (step,) = plan_test(test).steps
    assert isinstance(step, Require)
    assert holds(step.condition, lambda _: next(remaining)) is expected


@pytest.mark.parametrize(
    "value",
    [
        "bytes(1000000000)",
        "bytes(source=1000000000)",
        "Fraction('1e30000000')",
        "int(Decimal('1e30000000'))",
        "math.floor(Decimal((0, (1,), 30000000)))",
    ],
)
def test_values_that_are_large_to_compute_are_not_computed_here(value):
    began = time.process_time()
    assert not plan_test(f"assert f() == {value}").judged
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("bytes(3)", b"\0\0\0"),
        ("bytes('a', encoding='utf-8')", b"a"),
        ("round(1234, -2)", 1200),
        ("round(1.25, ndigits=1)", 1.2),
        ("round(2.5)", 2),
        ("Fraction('1/2')", Fraction(1, 2)),
        ("Fraction(1, denominator=2)", Fraction(1, 2)),
        ("int(Decimal('1e3'))", 1000),
    ],
)
def test_values_of_a_usual_size_are(value, expected):
    (step,) = plan_test(f"assert f() == {value}").steps
    assert isinstance(step, Require)
    assert isinstance(step.condition, Compared)
    assert step.condition.operands[1] == Known(expected)


@pytest.mark.parametrize(
    "test",
    [
        "assert round(1, f()) == 1",
        "assert f() == round(1, -30_000_000)",
        "assert f() == round(1, ndigits=-30_000_000)",
    ],
)
def test_digits_to_round_to_are_bounded(test):
    (step,) = plan_test(test).steps
    assert isinstance(step, Require)
    began = time.process_time()
    assert not holds(step.condition, lambda _: -30_000_000)
    assert time.process_time() - began < 1


def test_what_is_no_python_is_refused():
    with pytest.raises(SyntaxError):
        plan_test("assert f( == 1")
