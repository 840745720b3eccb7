"""Sections about distillation and training, and the differences of two specs."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec, TrainingSpec, parse_section, parse_spec
from modnorm.spec.reading import differences
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


def test_the_base_needs_no_population():
    least = {**PLAIN, "method": "base"}
    del least["population"]
    assert parse_spec(least) == parse_spec({**least, "population": {"size": 1}})


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


@pytest.mark.parametrize("field", ["rank", "alpha", "dropout"])
def test_full_training_has_no_adapter(field):
    with error_at(field) as caught:
        parse_section(TrainingSpec, {"method": "full", field: 0.5 if field == "dropout" else 3})
    assert "remove this" in caught.value.message


def test_fields_are_named_by_their_sections():
    there = {"task": {"limit": 5, "rows": [1, 2]}, "model": {"name": "x"}, "seed": 1}
    here = {"task": {"limit": 6, "rows": [1, 3]}, "model": {"name": "x", "digest": "d"}, "seed": 1}
    assert list(differences(there, here).items()) == [
        ("model.digest", (None, "d")),
        ("task.limit", (5, 6)),
        ("task.rows", ([1, 2], [1, 3])),
    ]
