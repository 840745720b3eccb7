"""Arguments and answers of worker calls, without vLLM."""

import pickle

import pytest

from modnorm.engines.vllm.serialization import (
    answer,
    pack_descriptor,
    pack_lineage,
    unpack_descriptor,
    unpack_lineage,
    value_of,
)
from modnorm.errors import CandidateError, EngineError, IncompatibleError, PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import NO_LINEAGE, Lineage, Step

DESCRIPTOR = Descriptor("portable-v1", 2**63 - 1, "modular_norm", 0.16, "5" * 64)


def plain(value):
    """Whether a value has only types that vLLM's serialisers preserve."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in {str, int, float, bytes}


@pytest.mark.parametrize("coefficients", [None, (), (0.25, 1.401298464324817e-45)])
def test_descriptors_survive_packing(coefficients):
    descriptor = DESCRIPTOR if coefficients is None else DESCRIPTOR.resolved(coefficients)
    packed = pack_descriptor(descriptor)

    assert plain(packed)
    assert unpack_descriptor(packed) == descriptor


def test_errors_keep_their_type():
    def fail():
        raise IncompatibleError("another model", field="model.name", remedy="give the right one")

    given = answer(fail)
    assert plain(given)
    assert pickle.loads(pickle.dumps(given)) == given
    with pytest.raises(IncompatibleError) as caught:
        value_of(given)
    assert (caught.value.field, caught.value.remedy) == ("model.name", "give the right one")


def test_candidate_errors_are_no_engine_errors():
    def overflow():
        raise CandidateError("inf")

    def out_of_memory():
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(CandidateError):
        value_of(answer(overflow))
    with pytest.raises(EngineError, match="out of memory"):
        value_of(answer(out_of_memory))


def test_steps_that_the_ranks_hold_are_omitted():
    steps = tuple(Step("es", (seed,), (1.0,), 0.5) for seed in range(5))
    whole = Lineage("m", "portable-v1", steps=steps)
    known = whole.until(3)
    for held, count in ((None, 5), (NO_LINEAGE, 5), ("of another run", 5), (known.digest, 2)):
        packed, after = pack_lineage(whole, held)
        assert plain([packed, after])
        assert packed.count('"seeds"') == count
        assert unpack_lineage(packed, after, known) == whole
    assert unpack_lineage(*pack_lineage(None, known.digest), known) is None
    with pytest.raises(PreconditionError):
        unpack_lineage(packed, after, whole)
