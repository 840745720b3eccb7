import pytest
import torch

from modnorm.noise import Block, get_scheme

CPU = torch.device("cpu")
SCHEME = get_scheme("randopt-reseed-v1")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_draws_in_the_weight_dtype_and_casts_exactly(dtype):
    generator = torch.Generator().manual_seed(938776589)
    expected = torch.randn((33, 20), generator=generator, dtype=dtype)

    noise = SCHEME.sample(938776589, "a.weight", (33, 20), dtype=dtype, device=CPU)

    assert noise.dtype == torch.float32
    assert torch.equal(noise.to(dtype), expected)
    assert torch.equal(noise, expected.float())


def test_every_tensor_starts_the_stream_again():
    first = SCHEME.sample(7, "layers.0.o_proj.weight", (16, 16), dtype=torch.float32, device=CPU)
    second = SCHEME.sample(7, "layers.1.o_proj.weight", (16, 16), dtype=torch.float32, device=CPU)

    assert torch.equal(first, second)


@pytest.mark.parametrize("block", [Block((3, 9)), Block((3, 9), (2, 5)), Block((0, 33), (1, 2))])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_block_is_a_slice_of_the_whole(block, dtype):
    whole = SCHEME.sample(5, "a", (33, 20), dtype=dtype, device=CPU)

    part = SCHEME.sample(5, "a", (33, 20), dtype=dtype, device=CPU, block=block)

    assert torch.equal(part, block.of(whole))
    assert part.untyped_storage().nbytes() == part.numel() * 4
