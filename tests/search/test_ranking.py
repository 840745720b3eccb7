import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.ranking import expert_union, mean_reward, rank, select_experts
from tests.faults import error_at

# Few values, so that ties are common.
REWARDS = st.lists(st.none() | st.sampled_from([0.0, 0.1, 0.25, 0.1325, 1.1]), max_size=30)


def literal_rank(rewards, population):
    """Take the best candidate repeatedly; among equal ones the first."""
    left = [i for i in range(population) if rewards[i] is not None]
    order = []
    while left:
        best = left[0]
        for i in left:
            if rewards[i] > rewards[best]:
                best = i
        left.remove(best)
        order.append(best)
    return tuple(order)


@given(REWARDS, st.data())
def test_rank_equals_that_of_a_literal_loop(rewards, data):
    population = data.draw(st.integers(0, len(rewards)))
    assert rank(rewards, population) == literal_rank(rewards, population)


@given(st.lists(st.sampled_from(["0", "0.01", "0.05", "0.06", "0.1", "1.05", "1.1"]), min_size=1))
def test_a_score_depends_on_the_decimals_of_its_rewards_alone(decimals):
    exact = sum(map(Fraction, decimals)) / len(decimals)
    assert mean_reward([float(one) for one in decimals]) == round(float(exact), 12)


def test_equal_sums_of_different_rewards_are_a_tie():
    """Sums that differ in the last bit, as 0.01 and 1.1 are not exact in binary."""
    ours = {0: 68, 0.01: 36, 0.05: 3, 0.06: 37, 0.1: 42, 1.05: 3, 1.06: 4, 1.1: 7}
    theirs = {0: 78, 0.01: 29, 0.05: 9, 0.06: 27, 0.1: 43, 1.06: 1, 1.1: 13}
    scores = [mean_reward(list(Counter(rewards).elements())) for rewards in (ours, theirs)]
    assert rank(scores, 2) == (0, 1)


@given(REWARDS, st.data())
def test_experts_are_the_heads_of_nested_prefixes(rewards, data):
    sizes = data.draw(st.lists(st.integers(0, len(rewards)), min_size=1, unique=True).map(sorted))
    scored = sum(reward is not None for reward in rewards[: sizes[0]])
    ensembles = list(range(1, scored + 1))
    selection = select_experts(rewards, sizes, ensembles)
    assert selection == {(n, k): literal_rank(rewards, n)[:k] for n in sizes for k in ensembles}
    union = expert_union(selection)
    assert list(union) == sorted({i for experts in selection.values() for i in experts})


def test_too_few_scored_candidates_are_refused():
    with error_at("population.ensemble_sizes", "K = 2 needs 2", kind=PreconditionError):
        select_experts([0.1, None, 0.2], [2, 3], [1, 2])
    with error_at("population.size", kind=PreconditionError):
        rank([0.1], 2)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_score_that_is_not_finite_has_no_rank(reward):
    with pytest.raises(InvalidInputError, match="candidate 1"):
        rank([0.1, reward], 2)


@given(st.lists(st.floats(-10, 10), min_size=1), st.floats(-10, 10))
def test_the_mean_never_falls_when_a_reward_grows(rewards, other):
    low, high = sorted([rewards[0], other])
    assert mean_reward([low, *rewards[1:]]) <= mean_reward([high, *rewards[1:]])
