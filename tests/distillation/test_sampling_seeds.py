from hypothesis import given
from hypothesis import strategies as st

from modnorm.distillation.harvesting import (
    harvest_seed,
    round_seed,
    row_seed,
    sample_seed,
    training_seed,
)
from modnorm.spec_limits import MAX_SEED

SEEDS = st.integers(0, MAX_SEED)


@given(SEEDS, st.integers(0, 1_000))
def test_seeds_fit_all_engines_and_differ_by_kind(seed, index):
    made = [make(seed, index) for make in (harvest_seed, sample_seed, row_seed)]
    assert all(0 <= each <= MAX_SEED for each in made)
    assert len(set(made)) == 3


def test_seeds_are_fixed():
    """A repeated job on another machine or another version gives the same answers."""
    assert sample_seed(0, 0) != row_seed(0, 0)
    assert row_seed(0, 0) == 988_759_122_096_763_294


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_runs_of_neighbouring_seeds_share_no_population_and_no_training(seed, rounds):
    made = [
        make(each, number)
        for make in (round_seed, training_seed)
        for each in range(seed, seed + 3)
        for number in range(1, rounds + 1)
    ]
    assert len(set(made)) == len(made)
    assert round_seed(seed, 0) == round_seed(seed, 1) == seed
