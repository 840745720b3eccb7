"""The tables: every element of a block belongs to one lane of one program."""

import pytest
import torch

from modnorm.noise import Block
from modnorm.perturbation.kernels import launch as module
from modnorm.perturbation.kernels.launch import covering, plan_launches

CPU = torch.device("cpu")
MATRIX = (12, 24)


def memory(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def memory_block(*arguments):
    block = module.memory_block(*arguments)
    assert block is not None
    return block


def lanes(plan):
    """Yield (view, canonical element, held address) of each lane that is inside its view."""
    size = plan.dtype.itemsize
    for program, view in enumerate(plan.tiles.tolist()):
        held, _, start, stride, rows, columns, blocks, first, down, across, *_ = plan.views[
            view
        ].tolist()
        for index in range((program - first) * plan.count, (program - first + 1) * plan.count):
            row, place = divmod(index, blocks)
            begin = start + row * stride
            for lane in range(8):
                element = 8 * (begin // 8 + place) + lane
                if row < rows and 0 <= element - begin < columns:
                    column = element - begin
                    yield view, element, held + size * (row * down + column * across)


@pytest.mark.parametrize(
    ("block", "aligned", "rows"),
    [
        (Block((0, 12)), True, False),
        (Block((3, 7)), True, False),
        (Block((0, 12), (8, 16)), True, True),
        (Block((2, 11), (8, 24)), True, True),
        (Block((0, 12), (3, 24)), False, True),
        (Block((0, 12), (0, 5)), False, True),
    ],
)
@pytest.mark.parametrize("count", [4, 64])
def test_each_element_has_one_lane(block, aligned, rows, count):
    held = memory(*block.shape_in(MATRIX))
    one = memory_block(MATRIX, block, held, held.clone(), 0)
    (plan,) = plan_launches([(held.dtype, one)], count, CPU)
    numbers = block.of(torch.arange(288).reshape(MATRIX)).flatten().tolist()

    assert (plan.aligned, plan.rows) == (aligned, rows)
    assert sorted((element, address) for _, element, address in lanes(plan)) == [
        (number, held.data_ptr() + 2 * index) for index, number in enumerate(numbers)
    ]


def test_rows_that_do_not_fill_counters():
    block, held = Block((1, 7), (2, 11)), memory(6, 9)
    one = memory_block((8, 13), block, held, held.clone(), 0)
    (plan,) = plan_launches([(held.dtype, one)], 4, CPU)

    numbers = block.of(torch.arange(104).reshape(8, 13)).flatten().tolist()
    assert sorted(element for _, element, _ in lanes(plan)) == numbers


def test_each_kind_of_block_is_one_launch():
    whole, odd = memory(12, 24), memory(12, 24, dtype=torch.float32)[:, 1:8]
    blocks = [
        (whole.dtype, memory_block(MATRIX, Block((0, 12)), whole, whole.clone(), 0)),
        (odd.dtype, memory_block(MATRIX, Block((0, 12), (1, 8)), odd, odd.clone(), 1)),
        (whole.dtype, memory_block((5,), Block((0, 5)), memory(5), memory(5), 2)),
        (whole.dtype, memory_block((5,), Block((2, 2)), memory(0), memory(0), 3)),
    ]
    plans = plan_launches(blocks, 16, CPU)

    assert [(plan.dtype, plan.rows, plan.aligned, len(plan.views)) for plan in plans] == [
        (torch.bfloat16, False, True, 1),
        (torch.float32, True, False, 1),
        (torch.bfloat16, False, False, 1),
    ]


def test_covering_suffices_from_any_element():
    for columns in range(1, 40):
        most = max((start + columns - 1) // 8 + 1 for start in range(8))
        assert covering(columns) == most
