import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.countdown import evaluate

TOKENS = st.sampled_from(["0", "1", "7", "44", "007", "+", "-", "*", "/", "(", ")", " "])


def python_value(expression: str) -> float | None:
    """Return Python's value of an expression without `**`, `//` and calls."""
    if "**" in expression or "//" in expression:
        return None
    try:
        value = eval(expression.strip(), {"__builtins__": {}})
    except (SyntaxError, TypeError, ArithmeticError):
        return None
    return value if type(value) in {int, float} and math.isfinite(value) else None


@given(st.lists(TOKENS, max_size=12).map("".join))
def test_any_text_is_legal_only_where_python_agrees(expression):
    assert evaluate(expression) == python_value(expression)


@pytest.mark.parametrize(
    "expression", ["1.5", "1_0", "4\n", "\u0664", "\u00b2", "1e3", "x", "4,4", "", "4(4)", "2**3"]
)
def test_other_operations_have_no_value(expression):
    assert evaluate(expression) is None


def test_nesting_is_bounded():
    assert (evaluate("-" * 200 + "1"), evaluate("-" * 201 + "1")) == (1, None)
    assert (evaluate("1" + "+1" * 200), evaluate("1" + "+1" * 201)) == (201, None)
