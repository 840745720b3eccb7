from modnorm.noise import get_scheme, scheme_names
from tests.faults import error_at


def test_every_name_gives_its_scheme():
    assert scheme_names() == ("portable-v1", "randopt-reseed-v1")
    assert [get_scheme(name).name for name in scheme_names()] == list(scheme_names())


def test_unknown_name_names_the_field_and_the_choices():
    with error_at("population.noise", "portable-v1, randopt-reseed-v1"):
        get_scheme("gauss")
