from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.analysis.seeds import bin_name, split_terms, support_bins, support_counts

SIZE = 4
votes = st.lists(st.tuples(st.integers(0, SIZE), st.booleans()), min_size=1, max_size=40)


def count_support(found, size):
    experts, correct = zip(*found, strict=True)
    return support_counts(experts, correct, size)


def decompose(one, other):
    """Return the support and the voting term."""
    shares = [each / rows.sum() for rows, right in (one, other) for each in (rows, right)]
    return tuple(map(float, split_terms(*shares)))


def literal(one, other):
    """The paper's sums in exact arithmetic, where every q is defined."""

    def p(found, m):
        return Fraction(int(found[0][m]), int(found[0].sum()))

    def q(found, m):
        return Fraction(int(found[1][m]), int(found[0][m]))

    support = sum((p(one, m) - p(other, m)) * (q(one, m) + q(other, m)) for m in range(SIZE + 1))
    voting = sum((p(one, m) + p(other, m)) * (q(one, m) - q(other, m)) for m in range(SIZE + 1))
    return float(support / 2), float(voting / 2)


@settings(max_examples=30)
@given(votes, votes)
def test_the_terms_are_those_of_the_paper(one, other):
    every = [(m, m > 1) for m in range(SIZE + 1)]
    first, second = count_support(one + every, SIZE), count_support(other + every, SIZE)
    assert first[0].sum() == len(one + every)
    assert len(first[0]) == SIZE + 1
    assert decompose(first, second) == pytest.approx(literal(first, second), abs=1e-12)


def test_rows_that_only_one_ensemble_has_count_as_support():
    one = count_support([(0, False), (2, True)], 2)
    other = count_support([(0, False), (1, False)], 2)
    assert decompose(one, other) == pytest.approx((0.5, 0.0))


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (1, ["0", "1"]),
        (2, ["0", "1", "2"]),
        (3, ["0", "1", "2", "3"]),
        (5, ["0", "1", "2", "3-4", "5"]),
        (10, ["0", "1", "2-4", "5-9", "10"]),
        (25, ["0", "1", "2-12", "13-24", "25"]),
        (100, ["0", "1", "2-49", "50-99", "100"]),
    ],
)
def test_bins_are_those_of_the_paper(size, names):
    assert [bin_name(counts) for counts in support_bins(size)] == names
