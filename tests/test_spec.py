"""Refused specs, their fields and their messages."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.spec import parse_spec
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at


@pytest.fixture
def refused_field():
    """Return a function that changes one value of a valid spec and returns the field at fault."""

    def parse(section, **values):
        sections: dict[str, dict[str, object]] = {
            "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "rows.jsonl"},
            "method": {"name": "randopt", "radius": 0.1},
            "population": {"size": 4},
            "calibration": {},
        }
        sections[section].update(values)
        with pytest.raises(InvalidInputError) as caught:
            parse_spec({"model": "tiny-thicket", **sections})
        return caught.value.field

    return parse


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("method", "radius", 0),
        ("method", "radius", -1),
        ("method", "radius", 1e-320),
        ("method", "radius", 1e308),
        ("method", "rank", 0),
        ("method", "rank", 513),
        ("method", "rank", 1.5),
        ("method", "rank", True),
        ("population", "prefixes", [3]),
        ("population", "prefixes", [4, 4]),
        ("population", "prefixes", [0, 4]),
        ("population", "ensemble_sizes", []),
        ("population", "ensemble_sizes", [0]),
        ("population", "ensemble_sizes", [2, 1]),
        ("population", "ensemble_sizes", [1, 5]),
    ],
)
def test_a_rule_between_fields_blames_the_field_that_breaks_it(
    section, name, value, refused_field
):
    assert refused_field(section, **{name: value}) == f"{section}.{name}"


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("population", "size"),
        ("population", "seed"),
        ("method", "radius"),
        ("task", "max_tokens"),
        ("calibration", "quantile"),
    ],
)
def test_a_boolean_is_no_number(section, name, refused_field):
    assert refused_field(section, **{name: True}) == f"{section}.{name}"


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


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_radius_that_is_not_finite_is_refused(value, refused_field):
    assert refused_field("method", radius=value) == "method.radius"


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
        parse_spec(
            {
                "model": "tiny-thicket",
                "task": {"name": "countdown", "selection": "a.jsonl", "heldout": "b.jsonl"},
                "method": method,
                "population": {"size": 1},
            }
        )


def method_spec(**method):
    content = {
        "model": "tiny-thicket",
        "task": {"name": "countdown", "selection": "a.jsonl", "heldout": "b.jsonl"},
        "method": method,
        "population": {"size": 1},
    }
    return parse_spec(content)


def test_sigma_under_a_misspelt_name_shows_the_name():
    with pytest.raises(InvalidInputError, match=r"the name is 'randopts'.* correct the name"):
        method_spec(name="randopts", sigma=0.1)
    with error_at("method.name"):
        method_spec(sigma=0.1)


def test_the_radius_may_be_an_artifact():
    named = {"artifact": "runs/tune/radius.json"}
    spec = method_spec(name="randopt", sigma=named)
    assert spec == method_spec(name="randopt", radius=named)
    assert not spec.method.is_resolved
    assert parse_spec(spec.model_dump(mode="json")) == spec


def test_a_seed_may_be_text_as_in_the_json_of_a_64_bit_integer():
    spec = parse_spec(
        {
            "model": "tiny-thicket",
            "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "rows.jsonl"},
            "method": {"name": "randopt", "radius": 0.1},
            "population": {"size": 4, "seed": "9007199254740993"},
        }
    )
    assert spec.population.seed == 9007199254740993


def with_engine(engine):
    return {
        "model": "tiny-thicket",
        "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "rows.jsonl"},
        "method": {"name": "randopt", "radius": 0.1},
        "population": {"size": 4},
        "engine": engine,
    }


def test_an_engine_without_settings_keeps_its_old_digest():
    before = "4da6b56ca52da94c537665fa9a2adeca17661cfa9130c22c1884700006525107"
    assert parse_spec(with_engine("vllm")).digest == before
    spelt = {"name": "vllm", "tensor_parallel_size": 1, "numerics": "fast", "drafts": "none"}
    assert parse_spec(with_engine(spelt)).digest == before
    assert parse_spec(with_engine({"name": "vllm", "max_num_seqs": 64})).digest != before


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
        parse_spec(with_engine(engine))


def test_statistics_of_experts_are_the_default_and_keep_the_digest():
    before = "4da6b56ca52da94c537665fa9a2adeca17661cfa9130c22c1884700006525107"
    spec = with_engine("vllm")
    for statistics, same in (("experts", True), ("full", False)):
        parsed = parse_spec({**spec, "population": {"size": 4, "statistics": statistics}})
        assert (parsed.digest == before) is same
        assert parse_spec(parsed.model_dump(mode="json")) == parsed


ITERATIVE = {
    "model": "tiny-thicket",
    "task": {"name": "countdown", "selection": "bundled:a", "heldout": "bundled:b"},
}


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


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"method": "mezo"}, "iterative.development"),
        ({"method": "es", "iterative": DEVELOPED}, "iterative.development"),
        ({"method": "es", "iterative": {"monitor": [0, 101]}}, "iterative.monitor"),
        ({"method": "es", "population": {"ensemble_sizes": [1, 2]}}, "population"),
        ({"method": "es", "population": {"statistics": "experts"}}, "population.statistics"),
        (
            {
                "method": {"name": "randopt", "radius": 1},
                "population": {"size": 2},
                "iterative": {"updates": 1, "rate": 1.0, "report": "last"},
            },
            "iterative",
        ),
        (
            {
                "method": {"name": "randopt", "radius": 1},
                "population": {"size": 2},
                "iterative": {"updates": 1},
            },
            "iterative",
        ),
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


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"seed": 42}, "seed", "population"),
        ({"method": {"name": "randopt", "rad": 0.1}}, "method.rad", "radius"),
        ({"method": {"name": "x", "masses": {"mpl": 1}}}, "method.masses.mpl", "mlp"),
        ({"engine": {"nam": "auto"}}, "engine.nam", "max_num_seqs"),
        (
            {"method": "es", "population": {}, "iterative": {"development": {"lim": 1}}},
            "iterative.development.lim",
            "limit",
        ),
        ({"method": {"name": "x", "radius": {"file": "x"}}}, "method.radius.file", "artifact"),
        ({"population": {"size": 4, "full": True}}, "population.full", "statistics"),
    ],
)
def test_the_error_for_an_unknown_field_lists_the_fields(changes, field, remedy):
    rows = {"selection": "rows.jsonl", "heldout": "rows.jsonl"}
    sound = {
        "model": "tiny-thicket",
        "task": {"name": "countdown", **rows},
        "method": {"name": "randopt", "radius": 0.1},
        "population": {"size": 4},
    }
    with pytest.raises(InvalidInputError) as caught:
        parse_spec({**sound, **changes})
    message = str(caught.value).partition(f"{field}: ")[2].partition(";")[0]
    assert message.startswith("there is no such field here, only ")
    assert remedy in message.removeprefix("there is no such field here, only ").split(", ")


def test_a_rank_is_part_of_the_experiment_and_full_rank_keeps_older_digests():
    method = {"name": "randopt", "radius": 0.1}
    content = {
        "model": "tiny-thicket",
        "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "other.jsonl"},
        "population": {"size": 4},
    }
    full = parse_spec({**content, "method": method})
    assert "rank" not in full.model_dump(mode="json")["method"]
    low = parse_spec({**content, "method": {**method, "rank": 16}})
    assert low.digest != full.digest
    assert spec_from_proto(spec_to_proto(low)) == low


def test_target_modules_are_part_of_the_experiment_and_all_keeps_older_digests():
    method = {"name": "randopt", "radius": 0.1, "rank": 16}
    content = {
        "model": "tiny-thicket",
        "task": {"name": "countdown", "selection": "rows.jsonl", "heldout": "other.jsonl"},
        "population": {"size": 4},
    }
    every = parse_spec({**content, "method": {**method, "target_modules": "all"}})
    assert every == parse_spec({**content, "method": method})
    assert "target_modules" not in every.model_dump(mode="json")["method"]
    linear = parse_spec({**content, "method": {**method, "target_modules": "all-linear"}})
    assert linear.digest != every.digest
    assert spec_from_proto(spec_to_proto(linear)) == linear
