import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.radius.artifact import CandidateDisplacement, Condition, objective, smallest

FIGURES = st.floats(1e-6, 1e3)


def condition(kl, hidden):
    one = CandidateDisplacement(seed=1, kl=kl, hidden=hidden, hidden_rms=0, states=())
    return Condition(radius=0.1, kl=kl, hidden=hidden, hidden_rms=0, candidates=(one,))


@given(FIGURES, FIGURES, FIGURES, FIGURES)
def test_the_objective_is_the_formula_and_punishes_both_sides_alike(kl, hidden, iso_kl, iso_h):
    ours, isotropic = condition(kl, hidden), condition(iso_kl, iso_h)
    plain = (math.log(kl) - math.log(iso_kl)) ** 2 + (math.log(hidden) - math.log(iso_h)) ** 2
    assert objective(ours, isotropic) == pytest.approx(plain, abs=1e-9)
    assert objective(isotropic, ours) == pytest.approx(plain, abs=1e-9)


def test_a_radius_that_moves_nothing_has_no_objective():
    assert objective(condition(0.0, 1.0), condition(1.0, 1.0)) is None
    assert objective(condition(1.0, 0.0), condition(1.0, 1.0)) is None


def test_means_that_differ_in_the_last_bit_are_a_tie():
    """Two sets of three runs on 500 rows, each with 533 right answers of 1,500."""
    small = fmean([count / 500 for count in (181, 176, 176)])
    large = fmean([count / 500 for count in (182, 180, 171)])
    assert large > small
    assert smallest([(0.08, -small), (0.16, -large)]) == 0.08


def test_the_smallest_objective_is_chosen_and_exact_ties_go_to_the_smaller_radius():
    assert smallest([(0.64, 0.5), (0.32, 0.25), (0.16, 0.75)]) == 0.32
    assert smallest([(0.64, 0.25), (0.32, 0.25), (0.16, 0.75)]) == 0.32
    assert smallest([(0.01, math.inf), (0.64, 9.0)]) == 0.64
