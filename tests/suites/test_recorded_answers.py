"""Analyses beyond the paper, on small tables whose right values are counted by hand."""

import math
from itertools import product
from operator import mul

import numpy as np
import pytest

from modnorm.analysis.uncertainty import mcnemar, sign_flip
from modnorm.search.voting import Ballot, plurality
from scripts.recorded_answers import (
    by_bounds,
    by_fewer_rows,
    by_race,
    confident_accuracy,
    gain_terms,
    known_accuracy,
    resampled,
)

# Means 0.75, 0.5, 0.5, 0.25; on the first two rows 0.5, 1, 0, 0.
REWARDS = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]], dtype=float)
ORDER = np.arange(4)
WHOLE = np.ones((1, 4))


def test_a_selection_by_fewer_rows_is_compared_with_the_full_one():
    found = by_fewer_rows(REWARDS, 1, np.array([0, 1]))
    assert found.chosen == (1,)
    assert (found.recall, found.lost, found.cost) == (0.0, 0.25, 0.5)
    both = by_fewer_rows(REWARDS, 2, np.array([0, 1]))
    assert both.chosen == (1, 0)
    assert (both.recall, both.lost) == (1.0, 0.0)


def test_a_race_scores_further_rows_of_the_best_only():
    found = by_race(REWARDS, 1, ORDER, ((1.0, 2), (0.5, 4)))
    assert found.chosen == (0,)
    assert (found.recall, found.lost) == (1.0, 0.0)
    assert found.cost == (4 * 2 + 2 * 2) / 16
    # It keeps as many candidates as are selected, and then costs as much as the full search.
    assert by_race(REWARDS, 4, ORDER, ((1.0, 2), (0.5, 4))).cost == 1.0


def test_bounds_drop_only_candidates_that_are_surely_not_among_the_best():
    rewards = np.vstack([np.ones(100), np.zeros(100), np.ones(100)])
    found = by_bounds(rewards, 2, np.arange(100), step=25)
    assert found.chosen == (0, 2)
    assert found.recall == 1.0
    assert found.cost == pytest.approx((3 * 25 + 2 * 75) / 300)
    close = np.tile([1.0, 0.0], (3, 50))
    assert by_bounds(close, 1, np.arange(100), step=25).cost == 1.0


def test_the_terms_of_a_gain_are_coverage_and_agreement():
    base_valid, base_right = np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0])

    def terms(before, before_right, valid, right):
        found = gain_terms(before, before_right, valid, right, WHOLE)
        return [float(term) for (term,) in found]

    # Twice the rows are answered, half of them right: all of the gain is coverage.
    assert terms(base_valid, base_right, np.ones(4), np.array([1.0, 1, 0, 0])) == [0.25, 0.0]
    # As many rows are answered, all of them right.
    assert terms(base_valid, base_right, base_valid, np.array([1.0, 1, 0, 0])) == [0.0, 0.25]
    nothing = np.zeros(4)
    assert terms(nothing, nothing, np.ones(4), np.array([1.0, 0, 0, 0])) == [0.25, 0.0]


@pytest.mark.parametrize(
    ("unanswered", "accuracy"), [(0.0, 0.5), (0.5, 1.0), (0.25, 2.5 / 3), (0.75, 1.0)]
)
def test_rows_of_least_agreement_are_left_out_first(unanswered, accuracy):
    support = np.array([9.0, 9, 3, 3])
    right = np.array([1.0, 1, 0, 0])
    if unanswered == 0.25:  # one of two tied rows is left out, of which one is right
        right = np.array([1.0, 1, 1, 0])
    assert confident_accuracy(support, right, WHOLE, unanswered) == pytest.approx([accuracy])


def test_an_interval_is_of_seeds_and_rows():
    grid = np.array([[1.0, 1, 1, 0], [1.0, 1, 0, 0]])
    value, interval = resampled(lambda seed, weights: weights @ grid[seed] / 4, 2, 4)
    assert value == 0.625
    assert interval is not None
    assert interval.lower < 0.5
    assert interval.upper > 0.75
    value, interval = resampled(lambda _seed, weights: weights.sum(axis=1) / 8, 2, 4)
    assert interval is not None
    assert (value, *interval) == pytest.approx((0.5, 0.5, 0.5))


def test_a_figure_that_some_resamples_lack_has_no_interval():
    found = resampled(lambda _, weights: np.where(weights[:, 0] > 0, 1.0, math.nan), 1, 4)
    assert found == (1.0, None)


def test_votes_of_any_experts_are_counted_as_in_a_run():
    """Ties go to the better-ranked expert; experts without a ballot do not vote."""
    said: dict[int, tuple[str | None, ...]] = {
        0: ("a", "b", None, "a"),
        1: ("b", "b", None, "c"),
        2: ("b", None, None, "c"),
    }
    ballots = {
        expert: Ballot(votes, tuple(vote == "b" for vote in votes))
        for expert, votes in said.items()
    }
    for experts in ([0, 1, 2], [1, 0], [0, 1], [2]):
        rows = zip(*(said[expert] for expert in experts), strict=True)
        right = [plurality(row, [vote == "b" for vote in row]).correct for row in rows]
        assert known_accuracy(ballots, experts) == sum(right) / 4
    assert known_accuracy(ballots, [3, 2]) == known_accuracy(ballots, [2])
    assert math.isnan(known_accuracy(ballots, [3]))


@pytest.mark.parametrize(("first", "second"), [(5, 1), (3, 3), (0, 4), (0, 0), (12, 4)])
def test_flipping_signs_of_single_differences_is_the_exact_mcnemar_test(first, second):
    differences = [1] * first + [-1] * second + [0] * 7
    assert sign_flip(differences) == pytest.approx(mcnemar(first, second))


def test_flipping_signs_counts_all_assignments():
    differences = [3, -1, 2, 2]
    sums = [abs(sum(map(mul, signs, differences))) for signs in product((1, -1), repeat=4)]
    assert sign_flip(differences) == pytest.approx(sum(each >= 6 for each in sums) / 16)
