import pytest
import torch

from modnorm.errors import InvalidInputError
from modnorm.noise import Block


@pytest.mark.parametrize(
    ("block", "shape", "size"),
    [
        (Block((1, 3)), (4, 6), (2, 6)),
        (Block((1, 3), (2, 6)), (4, 6), (2, 4)),
        (Block((0, 2)), (5,), (2,)),
        (Block((1, 2)), (3, 4, 5), (1, 4, 5)),
        (Block((0, 1)), (), ()),
        (Block((2, 2)), (4, 6), (0, 6)),
    ],
)
def test_shape_and_cut_agree(block, shape, size):
    assert block.shape_in(shape) == size
    assert block.of(torch.empty(shape)).shape == size


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        (Block((0, 5)), (4, 6)),
        (Block((-1, 2)), (4, 6)),
        (Block((3, 2)), (4, 6)),
        (Block((0, 4), (0, 7)), (4, 6)),
        (Block((0, 4), (5, 4)), (4, 6)),
        (Block((0, 4), (0, 1)), (4,)),
        (Block((0, 1), (0, 4)), (3, 4, 5)),
        (Block((0, 2)), ()),
    ],
)
def test_outside_is_refused(block, shape):
    with pytest.raises(InvalidInputError, match="not inside"):
        block.shape_in(shape)
