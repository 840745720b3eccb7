"""Specs of the experiments that a distillation makes."""

import pytest

from modnorm.services.aggregator.experiments.children import child_spec
from modnorm.spec import load_spec, parse_spec


@pytest.mark.parametrize(
    ("name", "child"),
    [
        ("", "round 12"),
        ("short", "short round 12"),
        ("n" * 193, "n" * 191 + " round 12"),
        ("n" * 200, "n" * 191 + " round 12"),
    ],
)
def test_the_name_of_a_child_fits(name, child):
    spec = load_spec("examples/demo-randopt.yaml").model_copy(update={"name": name})
    stored = child_spec(spec, spec.model.name, 12).model_dump(mode="json")
    assert parse_spec(stored).name == child
