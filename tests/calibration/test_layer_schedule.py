from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.calibration.profile import (
    final_norm_seed,
    map_seed,
    require_every_layer,
    scheduled_layers,
)
from tests.faults import error_at


def visits(layers, examples=64, per_example=4):
    return Counter(
        layer for e in range(examples) for layer in scheduled_layers(e, per_example, layers)
    )


@pytest.mark.parametrize(("layers", "favoured", "most"), [(28, 4, 10), (24, 16, 11), (36, 4, 8)])
def test_counts_are_those_of_the_published_profiles(layers, favoured, most):
    counts = visits(layers)
    assert [counts[layer] for layer in range(favoured)] == [most] * favoured
    assert {counts[layer] for layer in range(favoured, layers)} == {most - 1}


def test_seeds_are_the_published_ones():
    assert map_seed(1729, 0, 0, 0) == 1729
    assert map_seed(1729, 3, 12, 6) == 1729 + 300_009 + 1_212 + 6
    assert final_norm_seed(1729, 2) == 1729 + 200_006 + 90_001


@given(layers=st.integers(1, 60), per_example=st.integers(1, 8), examples=st.integers(1, 80))
def test_a_schedule_is_accepted_exactly_if_it_visits_every_layer(layers, per_example, examples):
    if len(visits(layers, examples, per_example)) == layers:
        require_every_layer(examples, per_example, layers)
    else:
        with error_at("calibration.examples"):
            require_every_layer(examples, per_example, layers)
