"""Refused specs, their fields and their messages."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at

SOUND: dict[str, dict[str, object]] = {
    "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "rows.jsonl"},
    "method": {"name": "randopt", "radius": 0.1},
    "population": {"size": 4},
}
ITERATIVE = {
    "model": "tiny-thicket",
    "task": {"name": "countdown", "selection": "bundled:a", "heldout": "bundled:b"},
}


def make(**sections):
    """Parse a sound spec with other sections."""
    return parse_spec({"model": "tiny-thicket", **SOUND, **sections})


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("method", "radius", 0),
        ("method", "radius", -1),
        ("method", "radius", 1e-320),
        ("method", "radius", 1e308),
        ("method", "radius", "NaN"),
        ("method", "radius", "Infinity"),
        ("method", "radius", True),
        ("method", "rank", 0),
        ("method", "rank", 513),
        ("method", "rank", 1.5),
        ("method", "rank", True),
        ("population", "size", True),
        ("population", "seed", True),
        ("population", "prefixes", [3]),
        ("population", "prefixes", [4, 4]),
        ("population", "prefixes", [0, 4]),
        ("population", "ensemble_sizes", []),
        ("population", "ensemble_sizes", [0]),
        ("population", "ensemble_sizes", [2, 1]),
        ("population", "ensemble_sizes", [1, 5]),
        ("task", "max_tokens", True),
        ("calibration", "quantile", True),
    ],
)
def test_a_wrong_value_blames_its_field(section, name, value):
    with error_at(f"{section}.{name}"):
        make(**{section: {**SOUND.get(section, {}), name: value}})


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("calibration", "layers_per_example"),
        ("calibration", "max_length"),
        ("failures", "max_failed_candidates"),
        ("iterative", "evaluate_every"),
    ],
)
def test_a_count_is_one_that_the_contracts_can_carry(section, name):
    spec = {**ITERATIVE, "method": "es"}
    largest = parse_spec({**spec, section: {name: 2**31 - 1}})
    assert spec_from_proto(spec_to_proto(largest)) == largest
    with error_at(f"{section}.{name}"):
        parse_spec({**spec, section: {name: 2**31}})


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ({"name": "modular_norm", "sigma": 0.1}, "method.sigma"),
        ({"name": "base", "radius": 0.1}, "method.radius"),
        ({"name": "modular_norm"}, "method.radius"),
        ({"name": "modular_norm", "sigma": {"artifact": "r.json"}}, "method.sigma"),
        ({"name": "base", "radius": {"artifact": "r.json"}}, "method.radius"),
        ({"name": "randopt", "radius": {}}, "method.radius"),
        ({"name": "randopt", "sigma": {"artifact": ""}}, "method.sigma"),
        ({"name": "randopt", "sigma": {"artifact": "r", "transfer": 1}}, "method.sigma.transfer"),
        (
            {"name": "randopt", "radius": 0.1, "radius_source": {"artifact": "r.json"}},
            "method.radius",
        ),
        ({"name": "randopt", "sigma": 0.1, "radius": 0.1}, "method.sigma"),
    ],
)
def test_a_radius_belongs_to_its_method(method, field):
    with error_at(field):
        make(method=method)


def test_the_file_of_a_radius_is_shown_as_a_spec_names_it():
    with error_at("method.radius", "{artifact: runs/tune/radius.json}"):
        make(method={"name": "modular_norm", "radius": "runs/tune/radius.json"})


def test_sigma_under_a_misspelt_name_shows_the_name():
    with pytest.raises(InvalidInputError, match=r"'randopts'.*name: did you mean randopt\?"):
        make(method={"name": "randopts", "sigma": 0.1})
    with error_at("method.name"):
        make(method={"sigma": 0.1})


def test_the_radius_may_be_an_artifact():
    named = {"artifact": "runs/tune/radius.json"}
    spec = make(method={"name": "randopt", "sigma": named})
    assert spec == make(method={"name": "randopt", "radius": named})
    assert not spec.method.is_resolved
    assert parse_spec(spec.model_dump(mode="json")) == spec


DIGEST = "4da6b56ca52da94c537665fa9a2adeca17661cfa9130c22c1884700006525107"
"""Digest of a spec whose engine is vLLM; fields that were added later keep it at their default."""


@pytest.mark.parametrize(
    ("section", "same", "other"),
    [
        (
            "engine",
            {"tensor_parallel_size": 1, "numerics": "fast", "drafts": "auto"},
            {"max_num_seqs": 64},
        ),
        ("method", {"rank": None}, {"rank": 16}),
        ("method", {"target_modules": "all"}, {"rank": 16, "target_modules": "all-linear"}),
    ],
)
def test_a_field_at_its_default_keeps_the_digest(section, same, other):
    sections: dict[str, dict[str, object]] = {**SOUND, "engine": {"name": "vllm"}}
    assert make(**sections).digest == DIGEST
    assert make(**{**sections, section: {**sections[section], **same}}).digest == DIGEST
    changed = make(**{**sections, section: {**sections[section], **other}})
    assert changed.digest != DIGEST
    assert parse_spec(changed.model_dump(mode="json")) == changed
    assert spec_from_proto(spec_to_proto(changed)) == changed


@pytest.mark.parametrize(
    "engine",
    [
        {"max_model_len": 1},
        {"max_num_seqs": 0},
        {"tensor_parallel_size": 0},
        {"numerics": "exact"},
        {"numerics": "batch_invariant", "name": "transformers"},
        {"tensor_parallel_size": 2, "name": "transformers"},
        {"drafts": "model"},
        {"drafts": "population", "name": "transformers"},
        {"drafts": "population", "numerics": "batch_invariant"},
    ],
)
def test_a_setting_that_no_engine_has_is_refused(engine):
    with error_at(f"engine.{next(iter(engine))}"):
        make(engine=engine)


def test_iterative_methods_have_the_settings_of_the_paper():
    es = parse_spec({**ITERATIVE, "method": "es"})
    mezo = parse_spec({**ITERATIVE, "method": "mezo", "iterative": {"development": "bundled:c"}})

    assert es.iterative is not None
    assert (es.method.radius, es.population.size, es.iterative.updates) == (0.001, 30, 100)
    assert (es.iterative.rate, es.iterative.report) == (0.0005, "last")
    assert mezo.iterative is not None
    assert (mezo.method.radius, mezo.population.size, mezo.iterative.updates) == (0.001, 2, 1500)
    assert (mezo.iterative.rate, mezo.iterative.report) == (1e-6, "best")
    assert mezo.iterative.evaluate_every == 100


DEVELOPED = {"development": "bundled:c"}
SEARCH = {"method": {"name": "randopt", "radius": 1}, "population": {"size": 2}}


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"method": "mezo"}, "iterative.development"),
        ({"method": "es", "iterative": DEVELOPED}, "iterative.development"),
        ({"method": "es", "iterative": {"monitor": [0, 101]}}, "iterative.monitor"),
        ({"method": "es", "population": {"ensemble_sizes": [1, 2]}}, "population"),
        ({**SEARCH, "iterative": {"updates": 1, "rate": 1.0, "report": "last"}}, "iterative"),
        ({**SEARCH, "iterative": {"updates": 1}}, "iterative"),
        ({"method": "mezo", "population": {"size": 3}, "iterative": DEVELOPED}, "population.size"),
        (
            {"method": "mezo", "population": {"seed": 2**62}, "iterative": DEVELOPED},
            "population.seed",
        ),
        (
            {"method": "mezo", "iterative": {**DEVELOPED, "rounding": "published"}},
            "iterative.rounding",
        ),
        ({"method": "zo_finetuner", "iterative": DEVELOPED}, "iterative.generator"),
        (
            {
                "method": "zo_finetuner",
                "iterative": {**DEVELOPED, "generator": "generator.json"},
                "engine": {"name": "vllm", "tensor_parallel_size": 2},
            },
            "engine.tensor_parallel_size",
        ),
    ],
)
def test_iterative_settings_that_do_not_fit_are_refused(sections, field):
    with error_at(field):
        parse_spec({**ITERATIVE, **sections})
