import pytest

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import base_descriptor
from modnorm.perturbation.population import population_seeds
from modnorm.perturbation.sampling import sample_descriptors


@pytest.mark.parametrize("pool", ["nested", "published"])
def test_descriptors_follow_the_pool_in_order(model, pool):
    descriptors = list(
        sample_descriptors(
            model.scale_map, radius=0.16, noise="portable-v1", seed=42, size=7, pool=pool
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
def test_bad_input_is_refused_before_the_first_descriptor(model, change, field):
    settings = {"radius": 0.1, "noise": "portable-v1", "seed": 1, "size": 3, "pool": "nested"}

    with pytest.raises(InvalidInputError) as error:
        sample_descriptors(model.scale_map, **(settings | change))

    assert error.value.field == field


def test_base_descriptor_leaves_the_weights_alone(unperturbed):
    weights = unperturbed.hold()
    descriptor = base_descriptor(unperturbed.scale_map.digest, "portable-v1")

    assert (descriptor.method, descriptor.radius, descriptor.seed) == ("base", 0.0, 0)
    assert weights.apply(descriptor, unperturbed.scale_map) == descriptor
    assert weights.is_pristine()
