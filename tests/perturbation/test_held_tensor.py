import pytest
import torch

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.errors import EngineError, IncompatibleError
from modnorm.noise import Block
from modnorm.perturbation.held_tensor import HeldTensor, WeightView
from modnorm.perturbation.lineage import Rounding
from tests.faults import error_at

MATRIX = PhysicalTensor("a.weight", (6, 4), (Part("a.weight", 6),))


def view(block, *shape, dtype=torch.bfloat16):
    return WeightView(torch.arange(1, 25, dtype=dtype)[: prod(shape)].reshape(shape), block)


def prod(shape):
    return int(torch.tensor(shape).prod())


def add_one(block):
    return torch.ones(block.shape_in(MATRIX.shape))


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([], "no view of"),
        ([view(Block((0, 6)), 6, 3)], "in the engine"),
        ([view(Block((0, 7)), 7, 3)], "not inside"),
        ([view(Block((0, 4)), 4, 4), view(Block((3, 6)), 3, 4)], "overlap"),
        ([view(Block((0, 6), (0, 3)), 6, 3), view(Block((2, 4), (2, 4)), 2, 2)], "overlap"),
        ([view(Block((0, 6)), 6, 4, dtype=torch.float64)], "float64"),
        ([view(Block((0, 6)), 6, 4, dtype=torch.int8)], "int8"),
        (
            [view(Block((0, 3)), 3, 4), view(Block((3, 6)), 3, 4, dtype=torch.float32)],
            "differ in dtype",
        ),
    ],
)
def test_views_that_do_not_fit_are_refused(views, message):
    with pytest.raises(IncompatibleError, match=message):
        HeldTensor(MATRIX, views)


def test_a_strided_storage_is_written_in_place():
    memory = torch.zeros(12, 10, dtype=torch.bfloat16)
    held = HeldTensor(MATRIX, [WeightView(memory[2:8, 3:7], Block((0, 6)))])

    held.write(2.0, add_one)

    assert float(memory.sum()) == 2 * 24
    assert torch.equal(memory[2:8, 3:7], torch.full((6, 4), 2, dtype=torch.bfloat16))
    assert not held.is_pristine()
    held.restore()
    assert not memory.any()
    assert held.is_pristine()


def test_whole_storage_is_not_copied_to_assemble():
    storage = torch.zeros(6, 4)

    assert (
        HeldTensor(MATRIX, [WeightView(storage, Block((0, 6)))]).assemble().data_ptr()
        == storage.data_ptr()
    )


NARROW = [torch.bfloat16, torch.float16]


def widened(dtype):
    """A whole matrix of weights in float32 memory."""
    storage = torch.linspace(-1, 1, 24).reshape(6, 4).to(dtype).float()
    return storage, HeldTensor(MATRIX, [WeightView(storage, Block((0, 6)))], dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_float32_memory_holds_weights_of_the_narrower_dtype(dtype):
    storage, held = widened(dtype)
    weights = storage.to(dtype)
    plain = HeldTensor(MATRIX, [WeightView(weights.clone(), Block((0, 6)))])
    for one in (held, plain):
        one.write(2.0**-9, add_one)

    assert held.dtype == dtype
    assert held.assemble().dtype == dtype
    assert torch.equal(held.assemble(), plain.assemble())
    assert torch.equal(storage, plain.assemble().float())
    held.restore()
    assert torch.equal(storage, weights.float())


def test_is_pristine_reads_the_memory_of_the_engine():
    storage, held = widened(torch.bfloat16)
    weights = storage.bfloat16()
    storage[2, 1] += 1e-6

    assert torch.equal(storage.bfloat16(), weights)
    assert not held.is_pristine()
    with pytest.raises(EngineError, match="something else wrote") as caught:
        held.assemble()
    assert caught.value.remedy
    held.restore()
    assert held.is_pristine()


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (torch.full((6, 4), 0.1), torch.bfloat16, "numbers that torch.bfloat16 cannot"),
        (torch.full((6, 4), 0.5, dtype=torch.float16), torch.bfloat16, "cannot store"),
        (torch.full((6, 4), 0.5, dtype=torch.bfloat16), torch.float32, "cannot store"),
        (torch.full((6, 4), 0.5), torch.float64, "cannot store"),
    ],
)
def test_memory_that_cannot_hold_the_weights_exactly_is_refused(values, dtype, message):
    with pytest.raises(IncompatibleError, match=message):
        HeldTensor(MATRIX, [WeightView(values, Block((0, 6)))], dtype)


def test_weights_that_are_nan_are_the_fault_of_the_model():
    values = torch.full((6, 4), 0x7F80_0001, dtype=torch.int32).view(torch.float32)
    with error_at("model.name", "t holds NaN", kind=IncompatibleError):
        HeldTensor(MATRIX, [WeightView(values, Block((0, 6)))], torch.bfloat16)


def test_an_update_moves_float32_memory_with_the_base():
    storage, held = widened(torch.bfloat16)
    expected = (storage + 1).bfloat16()
    held.advance(add_one, Rounding.ONCE)

    assert torch.equal(storage, expected.float())
    assert held.is_pristine()
    held.rebase(torch.zeros(6, 4, dtype=torch.bfloat16))
    assert not storage.any()
