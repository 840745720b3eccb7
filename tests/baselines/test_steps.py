"""Seeds, z-scores, slopes, normalisers and selection of states."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.baselines.updates import (
    DevelopmentResult,
    best_state,
    es_seeds,
    es_step,
    last_amplitudes,
    last_losses,
    mezo_step,
    normaliser,
    step_seed,
    tensor_weights,
    z_scores,
    zo_step,
)
from modnorm.errors import PreconditionError
from modnorm.perturbation.lineage import Lineage, Rounding, Step, as_float32
from tests.faults import error_at

REWARDS = st.lists(st.floats(0, 2), min_size=1, max_size=30)


def test_seeds_of_es_are_numpys():
    assert es_seeds(42, 0, 3) == (95832482, 831028979, 702840816)
    assert es_seeds(42, 1, 3) == es_seeds(43, 0, 3)


@given(REWARDS)
def test_z_scores_have_mean_zero_and_no_more_than_unit_deviation(rewards):
    shaped = z_scores(rewards)

    assert math.fsum(shaped) / len(shaped) == pytest.approx(0, abs=1e-6)
    assert math.fsum(one * one for one in shaped) / len(shaped) <= 1 + 1e-9


def test_a_failed_candidate_is_excluded_from_a_step():
    step = es_step((1, 2, 3), (0.0, None, 1.0), alpha=0.3)

    assert step.coefficients == (-as_float32(1 / (1 + 2e-8)), 0.0, as_float32(1 / (1 + 2e-8)))
    assert step.rate == as_float32(0.1)
    with pytest.raises(PreconditionError, match="no candidate"):
        es_step((1,), (None,), alpha=0.3)
    for sides in ((None, 0.5), (0.5, None)):
        with pytest.raises(PreconditionError, match="no direction"):
            mezo_step(1, *sides, epsilon=1e-3, rate=1e-6)


def test_weights_of_embeddings_are_those_of_a_batch():
    shapes = {"model.embed_tokens.weight": (151_936, 1536), "a": (3, 4), "embed.bias": (7,)}

    assert tensor_weights(shapes) == [15 * 200 * 1536, 12, 7]
    assert tensor_weights(shapes, 4)[0] == 4 * 200 * 1536


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(1, 10**6)), min_size=1, max_size=9))
def test_normalised_amplitudes_have_the_mean_square_of_ones(pairs):
    amplitudes, weights = zip(*pairs, strict=True)
    scale = normaliser(amplitudes, weights)

    mean = math.fsum(w * (scale * a) ** 2 for a, w in pairs) / math.fsum(weights)
    assert mean == pytest.approx(1)


def test_the_last_step_gives_the_inputs_of_the_generator():
    assert last_losses(()) == (0.0, 0.0)
    assert last_amplitudes((), 2) == (1.0, 1.0)
    step = zo_step(1, 0.5, 0.25, raw=(0.5, 2.0), scale=4.0, epsilon=1e-3, rate=1e-6)
    assert step.amplitudes == (2.0, 8.0)
    assert last_losses([step]) == (-0.5, -0.25)
    assert last_amplitudes([step], 2) == (0.5, 2.0)


def test_ties_go_to_the_reward_then_to_the_earlier_state():
    results = [
        DevelopmentResult(0, 0.30, 0.35),
        DevelopmentResult(100, 0.32, 0.36),
        DevelopmentResult(200, 0.32, 0.37),
        DevelopmentResult(300, 0.32, 0.37),
    ]
    assert best_state(results).step == 200


def lineage_of(count):
    steps = tuple(
        mezo_step(step_seed(1, step), 0.5, 0.25, epsilon=1e-3, rate=1e-6) for step in range(count)
    )
    return Lineage("a" * 64, "portable-v1", Rounding.ONCE, steps)


def test_a_lineage_round_trips():
    lineage = lineage_of(3).extended(es_step((1, 2), (None, 0.1), 0.1))

    again = Lineage.from_json(lineage.to_json())

    assert again == lineage
    assert again.digest == lineage.digest
    assert json.loads(lineage.to_json())["steps"][0]["kind"] == "mezo"


def test_digests_are_a_chain_over_all_that_matters():
    lineage = lineage_of(3)

    assert lineage.digests[:3] == lineage.until(2).digests
    assert lineage.missing("") == lineage.steps
    assert lineage.missing(lineage.until(2).digest) == lineage.steps[2:]
    assert lineage.until(2).missing(lineage.digest) is None
    others = [
        Lineage("b" * 64, "portable-v1"),
        Lineage("a" * 64, "randopt-reseed-v1"),
        Lineage("a" * 64, "portable-v1", Rounding.PUBLISHED),
    ]
    assert len({one.digest for one in [*others, lineage.until(0)]}) == 4


@pytest.mark.parametrize(
    "fault",
    [
        {"seeds": [1, 2]},
        {"coefficients": [0.1]},
        {"rate": 1e300},
        {"scores": [float("nan")]},
        {"normaliser": float("inf")},
        {"surplus": 1},
    ],
)
def test_malformed_steps_are_refused(fault):
    text = json.dumps({"kind": "es", "seeds": [1], "coefficients": [0.5], "rate": 0.5, **fault})

    with error_at("lineage.steps"):
        Step.from_json(text)
