"""Agreement with sympy: an expression's LaTeX and plain text have the same form."""

import mpmath
import sympy
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.mathematics.canonical import canonical

X = sympy.Symbol("x", positive=True)
FUNCTIONS = (
    "log",
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "exp",
    "sinh",
    "cosh",
    "tanh",
    "atan",
)

rationals = st.fractions(min_value="1/9", max_value=9, max_denominator=9).map(
    lambda value: sympy.Rational(value.numerator, value.denominator)
)
applied = st.builds(
    lambda name, argument, power: getattr(sympy, name)(argument) ** power,
    st.sampled_from(FUNCTIONS),
    st.builds(lambda factor, base: factor * base, rationals, st.sampled_from((1, X, X + 1))),
    st.integers(1, 3),
)
expressions = st.lists(applied, min_size=1, max_size=3).map(sympy.prod)


def _latex(expression):
    return sympy.latex(expression, ln_notation=True, inv_trig_style="full")


def _plain(expression):
    text = sympy.sstr(expression)
    for printed, usual in (("log(", "ln("), ("atan(", "arctan("), ("E", "e")):
        text = text.replace(printed, usual)
    return text


@given(expressions)
def test_powers_of_functions_are_read_as_they_are_printed(expression):
    assert canonical(_latex(expression)) == canonical(_plain(expression))


@given(expressions.map(lambda expression: expression.subs(X, 2)))
def test_values_are_those_of_computer_algebra(expression):
    with mpmath.workdps(40):
        expected = mpmath.mpf(str(sympy.N(expression, 40)))
        found = mpmath.mpmathify(canonical(_latex(expression)))
        assert mpmath.almosteq(found, expected, rel_eps=mpmath.mpf(10) ** -18)
