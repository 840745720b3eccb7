import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.analysis.run_data import VoteRow
from modnorm.analysis.statistics import prefix_statistics, vote_agreement
from modnorm.errors import InvalidInputError


def test_figures_of_a_small_prefix():
    figures = prefix_statistics([0.1, None, 0.3, 0.2, 9.0], 4, base=0.2)
    assert (figures.population, figures.scored) == (4, 3)
    assert figures.mean == pytest.approx(0.2)
    assert figures.sample_sd == pytest.approx(0.1)
    assert figures.density == pytest.approx(1 / 3)
    assert figures.top1 == 0.3
    assert figures.top5_mean is None
    assert figures.top10_mean is None
    assert figures.p90 == pytest.approx(0.28)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0, 1))
def test_figures_are_those_of_literal_loops(rewards, base):
    figures = prefix_statistics(rewards, len(rewards), base)
    mean = math.fsum(rewards) / len(rewards)
    variance = math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)
    best = sorted(rewards, reverse=True)
    assert figures.mean == pytest.approx(mean)
    assert figures.sample_sd == pytest.approx(math.sqrt(variance), abs=1e-9)
    assert figures.density == len([r for r in rewards if r > base]) / len(rewards)
    assert figures.top1 == best[0]
    for count, found in ((5, figures.top5_mean), (10, figures.top10_mean)):
        expected = sum(best[:count]) / count if len(rewards) >= count else None
        assert found == (None if expected is None else pytest.approx(expected))
    for q, found in ((0.9, figures.p90), (0.95, figures.p95), (0.99, figures.p99)):
        assert found == pytest.approx(float(np.quantile(rewards, q)), abs=1e-12)


def test_a_prefix_without_scores_has_no_figures():
    with pytest.raises(InvalidInputError, match="none of the first 2"):
        prefix_statistics([None, None, 0.5], 2, base=0.1)


def vote(valid, support, correct_support, *, correct=False):
    answer = "1" if valid else None
    return VoteRow(0, answer, correct, valid, support, correct_support)


def test_agreement_of_a_vote():
    votes = [vote(3, 3, 3, correct=True), vote(2, 1, 1), vote(0, 0, 0), vote(1, 1, 0)]
    agreement = vote_agreement(votes, 3)
    assert agreement.mean_valid == 1.5
    assert agreement.mean_support == pytest.approx((1 + 0.5 + 1) / 3)
    assert agreement.unanimous == 0.25
    assert agreement.no_vote == 0.25
    assert agreement.any_correct == 0.5
    assert agreement.correct_support == (2, 1, 0, 1)
