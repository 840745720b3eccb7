from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.mathematics.numbers import last_number, number, stated_number

READINGS = (number, stated_number, last_number)

NUMBERS = {
    "0": ["-0", "0.00", "$0"],
    "5": ["05", "5.", "+5", "(5)", "\uff15", "5 %", r"5\%", "\u20ac5", "5 EUR", "US$5", "10/2"],
    "-5": ["\u22125", "-$5", "$-5", "-\u00a35"],
    "0.5": ["1/2", ".5", "\u00bd", "1\u20442", r"\frac12", r"$\dfrac{1}{2}$", "2/4", "5e-1"],
    "1/3": [r"\frac{2}{6}", "2/6", r"0.\overline{3}"],
    "3.5": ["3 1/2", "3\u00bd", r"3\frac{1}{2}", "7/2"],
    "70000": ["70,000", r"70\,000", r"70,\!000", "70{,}000", "70\u2009000", "70\u202f000"],
    "100000": ["1 lakh", "100 thousand", r"1{,}00{,}000"],
    "1500000": ["$1.5 million", r"1.5\text{ million}", "3/2 million", "15 hundred thousand"],
    "24": ["2 dozen", "2 Dozen"],
    "0.03": ["3 hundredths"],
}
NUMBERS_IN_WORDS = {
    "-5": ["minus 5", "negative 5"],
    "3.5": ["3 and 1/2", "3 and a half"],
    "1000.5": ["1.000,50", "1,000.50", "1'000.5", "1 000.5"],
    "1234567": ["1.234.567", "12,34,567", "1 234 567", "1\u2019234\u2019567"],
    "100000": ["1,00,000", "\u20b91,00,000", "100k"],
    "1500000": ["1.5M"],
}
"""Notations that mean lists or symbols in mathematics."""
NO_NUMBERS = [
    *("", " ", "five", "x", "2x", r"\pi", "10:30", "3:1", "5/12/2020", "10-12", "10\u201312"),
    *("5 or 6", "5, 6", "1.2.3", "3,50", "5/0", "18 eggs", "18 (9 * 2)", "\u0664", "9" * 500),
    r"\frac{1}{",
]


def cases(table):
    return [(form, text) for form, texts in table.items() for text in texts]


@pytest.mark.parametrize(("form", "text"), cases(NUMBERS) + cases(NUMBERS_IN_WORDS))
def test_every_notation_of_a_number_has_one_form(form, text):
    assert number(text) == form
    assert stated_number(text) == form


@pytest.mark.parametrize(("form", "text"), cases(NUMBERS))
def test_mathematics_reads_the_same_numbers(form, text):
    assert Fraction(canonical(text)) == Fraction(form)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_other_texts_are_no_numbers(text):
    assert number(text) is None


rationals = st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=1000)


@given(rationals)
def test_every_way_to_write_a_rational_is_one_number(value):
    n, d = value.numerator, value.denominator
    whole, rest = divmod(abs(n), d)
    sign = "-" if n < 0 else ""
    texts = [
        f"{n}/{d}",
        rf"\frac{{{n}}}{{{d}}}",
        rf"${sign}\dfrac{{{abs(n)}}}{{{d}}}$",
        f"{n} / {d}",
    ]
    if rest:
        texts.append(f"{sign}\\frac{{{abs(n)}}}{{{d}}}")
    if whole and rest and n > 0:
        texts += [f"{whole} {rest}/{d}", rf"{whole:,}\frac{{{rest}}}{{{d}}}"]
    form = number(str(value))
    assert form is not None
    assert Fraction(form) == value
    assert {read(text) for text in texts for read in (number, stated_number)} == {form}


@given(
    st.text(max_size=300)
    | st.text(
        alphabet="0123456789+-*/^(){}.,=:; \\$%kMxfracoverlinetext\u00bd\u2009", max_size=200
    )
)
def test_a_text_has_a_number_or_none(text):
    for read in READINGS:
        form = read(text)
        assert form is None or number(form) == form
    assert number(text) in {None, stated_number(text)}
