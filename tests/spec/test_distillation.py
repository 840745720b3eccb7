import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at

PLAIN = {
    "model": "tiny",
    "task": {"name": "countdown", "selection": "s.jsonl", "heldout": "h.jsonl"},
    "method": {"name": "randopt", "sigma": 0.1},
    "population": {"size": 4, "ensemble_sizes": [1, 3]},
}
ROWS = {"rows": "t.jsonl", "development": "d.jsonl"}


def make(*, changes=None, **distillation) -> ExperimentSpec:
    return parse_spec({**PLAIN, **(changes or {}), "distillation": {**ROWS, **distillation}})


def test_a_spec_without_the_section_keeps_its_digest():
    plain = parse_spec(PLAIN)
    assert plain.distillation is None
    assert "distillation" not in plain.model_dump(mode="json")
    assert make().digest != plain.digest


def test_the_section_survives_the_wire():
    spec = make(
        rounds=2,
        harvest={
            "experts": 3,
            "temperature": 0.5,
            "top_p": 0.9,
            "samples": 2,
            "only_wrong": True,
            "accumulate": False,
        },
        search_around="base",
        train_from="student",
        training={"rank": 4, "epochs": 1},
    )
    assert spec_from_proto(spec_to_proto(spec)) == spec
    assert spec_from_proto(spec_to_proto(make())) == make()


@pytest.mark.parametrize(
    ("distillation", "field"),
    [
        ({"rounds": 0}, "distillation.rounds"),
        ({"harvest": {"temperature": 0, "samples": 2}}, "distillation.harvest.samples"),
        ({"harvest": {"experts": 2}}, "distillation.harvest.experts"),
        ({"harvest": {"keep": 0}}, "distillation.harvest.keep"),
        ({"harvest": {"top_p": 0}}, "distillation.harvest.top_p"),
        ({"search_around": "best"}, "distillation.search_around"),
        ({"training": {"rank": 0}}, "distillation.training.rank"),
        ({"rows": 3}, "distillation.rows"),
        ({"typo": 3}, "distillation.typo"),
    ],
)
def test_a_wrong_setting_is_named(distillation, field):
    with error_at(field):
        make(**distillation)


@pytest.mark.parametrize("method", ["base", {"name": "es"}])
def test_a_method_without_experts_cannot_be_distilled(method):
    population = {"size": 4} if method != "base" else PLAIN["population"]
    with pytest.raises(InvalidInputError, match="no experts"):
        make(changes={"method": method, "population": population})
