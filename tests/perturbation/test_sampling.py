import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.noise.portable import philox4x32, stream_key
from modnorm.perturbation.sampling import population_seeds, sample_descriptors
from tests.faults import error_at


@pytest.mark.parametrize(
    ("seed", "size", "first", "last"),
    [
        (42, 100, (938776589, 2019291947, 1438414587, 1002275702, 967354493), 1788162796),
        (43, 100, (1074513892, 1209421345, 1634662023, 159033750, 1400801936), 901895659),
        (44, 100, (1215746718, 2112311244, 1792573174, 594047895, 1323997002), 350137039),
        (42, 300, (1102145528, 1676602680, 273969188, 947401225, 193376296), 1514330985),
        (43, 300, (1090725831, 652760037, 1475403653, 1850989157, 371840979), 136878906),
        (44, 300, (1391314893, 673308854, 1027014137, 1944195680, 2050709531), 1739596362),
    ],
)
def test_published_pools(seed, size, first, last):
    seeds = population_seeds(seed, size, "published")

    assert seeds[:5] == first
    assert seeds[-1] == last
    assert len(set(seeds)) == size


@pytest.mark.parametrize(
    ("seed", "first"),
    [
        (42, (1263273133, 1705881553, 1227775092)),
        (43, (145961609, 2115022416, 933855159)),
        (44, (646910659, 1081470764, 370650829)),
    ],
)
def test_published_pools_of_3000(seed, first):
    assert population_seeds(seed, 3000, "published")[:3] == first


def test_nested_golden_values():
    assert population_seeds(42, 5, "nested") == (
        1590123842,
        1751634083,
        368001141,
        1791758915,
        729053726,
    )


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(1, 9000), st.data())
def test_nested_prefix_does_not_depend_on_the_size(seed, size, data):
    prefix = data.draw(st.integers(1, size))
    seeds = population_seeds(seed, size, "nested")

    assert population_seeds(seed, prefix, "nested") == seeds[:prefix]
    assert len(set(seeds)) == size
    assert 0 <= min(seeds) <= max(seeds) < 2**31


def test_nested_pool_is_the_words_in_order_without_repeats():
    """100,000 words of 31 bits have 2.3 repeats on average, by the birthday rule."""
    counters = torch.arange(25_000)
    zero = torch.zeros_like(counters)
    repeats = []
    for seed in range(4):
        words = philox4x32((counters, zero, zero, zero), stream_key("nested-v1", seed))
        members = (torch.stack(words, dim=1) >> 1).flatten().tolist()
        distinct = list(dict.fromkeys(members))
        repeats.append(len(members) - len(distinct))

        assert population_seeds(seed, len(distinct), "nested") == tuple(distinct)

    assert sum(repeats) > 0


@pytest.mark.parametrize("pool", ["nested", "published"])
def test_descriptors_follow_the_pool_in_order(model, pool):
    descriptors = list(
        sample_descriptors(
            model.scale_map.method,
            model.scale_map.digest,
            radius=0.16,
            noise="portable-v1",
            seed=42,
            size=7,
            pool=pool,
        )
    )

    assert tuple(one.seed for one in descriptors) == population_seeds(42, 7, pool)
    for one in descriptors:
        assert one == model.descriptor(one.seed, radius=0.16)
        assert one.coefficients is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"noise": "white"}, "population.noise"),
        ({"size": 0}, "population.size"),
        ({"pool": "other"}, "population.pool"),
    ],
)
def test_bad_input_is_refused_before_the_first_descriptor(change, field):
    population = {"radius": 0.1, "noise": "portable-v1", "seed": 1, "size": 3, "pool": "nested"}

    with error_at(field):
        sample_descriptors("randopt", "5" * 64, **(population | change))
