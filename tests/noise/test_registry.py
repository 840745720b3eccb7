from modnorm.noise import get_scheme
from tests.faults import error_at


def test_unknown_name_names_the_field_and_the_choices():
    with error_at("population.noise", "portable-v1, randopt-reseed-v1"):
        get_scheme("gauss")
