from dataclasses import replace

import pytest


def test_candidates_must_be_the_whole_population_in_order(run):
    with pytest.raises(ValueError, match="0, 1, 2"):
        replace(run, candidates=run.candidates[1:])


def test_the_order_is_that_of_the_ranking(make_run):
    run = make_run(prefixes=(20,), failed=frozenset({3}))
    assert len(run.order) == 19
    assert 3 not in run.order
    rewards = [run.candidates[index].selection_reward for index in run.order]
    assert rewards == sorted(rewards, reverse=True)
    assert run.prefixes == (20,)
