"""Every spec survives the way through its message; one of a newer version is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.spec import parse_spec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, spec_to_proto
from tests.faults import error_at

NEWER = b"\xfa\x3f\x01x"
"""Field 1023, of length 1, as a message of a later version may hold it."""
TEXT = st.text("abc é中'\"{}:", min_size=1, max_size=8)
SHARE = st.floats(0.01, 0.99)
COUNT = st.integers(2, 100)
SEED = st.integers(0, 2**63 - 1)
ROWS = TEXT | st.fixed_dictionaries(
    {"source": TEXT},
    optional={"config": TEXT, "split": TEXT, "revision": TEXT, "offset": COUNT, "limit": COUNT},
)
ENGINE = {
    "max_model_len": COUNT,
    "max_num_seqs": COUNT,
    "tensor_parallel_size": COUNT.filter(lambda n: n < 64),
}
CALIBRATION = {"examples": COUNT, "quantile": SHARE, "seed": SEED, "maps": st.just("published")}


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


SPECS = st.fixed_dictionaries(
    {
        "model": TEXT,
        "task": st.fixed_dictionaries(
            {"name": TEXT, "selection": ROWS, "heldout": ROWS},
            optional={"max_tokens": COUNT, "scorer": TEXT, "declaration": TEXT},
        ),
        "method": st.fixed_dictionaries(
            {"name": st.sampled_from(["randopt", "modular_norm"]), "radius": SHARE},
            optional={"rank": COUNT, "profile": TEXT, "masses": some(mlp=SHARE, head=SHARE)},
        ),
        "population": st.fixed_dictionaries(
            {"size": st.just(8), "seed": SEED},
            optional={"prefixes": st.just([4, 8]), "ensemble_sizes": st.just([1, 3])},
        ),
    },
    optional={
        "name": TEXT,
        "engine": st.fixed_dictionaries({"name": st.just("vllm")}, optional=ENGINE),
        "calibration": some(**CALIBRATION),
        "failures": some(max_attempts=COUNT, max_failed_candidates=COUNT),
    },
)
TRAINED = st.fixed_dictionaries(
    {
        "model": TEXT,
        "task": st.just({"name": "countdown", "selection": "a", "heldout": "b"}),
        "method": st.sampled_from(["mezo", "es"]),
        "iterative": st.fixed_dictionaries(
            {"report": st.just("best"), "development": ROWS},
            optional={"updates": COUNT, "rate": SHARE, "monitor": st.just([0, 1])},
        ),
    }
)


@given(SPECS | TRAINED)
def test_every_spec_survives_its_message(content):
    spec = parse_spec(content)
    sent = spec_to_proto(spec).SerializeToString()
    arrived = spec_from_proto(experiments.ExperimentSpec.FromString(sent))
    assert arrived == spec
    assert arrived.digest == spec.digest


@pytest.mark.parametrize("path", ["", "engine", "task.heldout"])
def test_a_spec_with_a_field_of_a_newer_version_is_no_spec_without_it(path, spec):
    message = part = spec_to_proto(spec)
    for name in filter(None, path.split(".")):
        part = getattr(part, name)
    part.MergeFromString(NEWER)
    arrived = experiments.ExperimentSpec.FromString(message.SerializeToString())
    with error_at(path or "spec", "does not know"):
        spec_from_proto(arrived)
