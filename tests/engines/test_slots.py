import pytest
import torch
from transformers import LlamaConfig

from modnorm.engines.causal import (
    PrefillWrite,
    SlotCache,
    StepWrite,
    masked_by_group,
    slot_attention,
)

CONFIG = LlamaConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
)
LENGTHS = torch.tensor([3, 5, 1])


@pytest.fixture
def cache() -> SlotCache:
    return SlotCache(CONFIG, rows=4, columns=8, dtype=torch.float32, device=torch.device("cpu"))


def states(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    return torch.randn(rows, 2, columns, 8, generator=generator)


def prefill(cache: SlotCache, first: int = 0) -> torch.Tensor:
    prompts = states(3, 5)
    real = torch.arange(5) < LENGTHS[:, None]
    prompts[~real[:, None].expand(3, 2, 5)] = float("nan")
    for layer in range(2):
        cache.prepare(PrefillWrite(first, real)).update(prompts, prompts, layer)
    return prompts


def test_padding_is_stored_as_zeros_even_where_it_is_not_finite(cache: SlotCache) -> None:
    prompts = prefill(cache, first=1)
    step = StepWrite(torch.arange(4), torch.tensor([0, 3, 5, 1]), 6)
    keys, values = cache.prepare(step).update(states(4, 1), states(4, 1), 1)
    assert keys.isfinite().all()
    assert values.isfinite().all()
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(keys[row + 1, :, :length], prompts[row, :, :length])
        assert torch.equal(keys[row + 1, :, length], states(4, 1)[row + 1, :, 0])
        assert not keys[row + 1, :, length + 1 :].any()


def test_moving_a_sequence_moves_its_keys_and_values(cache: SlotCache) -> None:
    prompts = prefill(cache)
    cache.move([1], [0], 5)
    step = StepWrite(torch.arange(1), torch.tensor([5]), 6)
    keys, _ = cache.prepare(step).update(states(1, 1), states(1, 1), 0)
    assert torch.equal(keys[0, :, :5], prompts[1])


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_attention_is_that_of_repeated_heads(key_heads: int) -> None:
    torch.manual_seed(key_heads)
    query, mask = torch.randn(3, 4, 1, 8), torch.zeros(3, 1, 1, 6)
    key, value = torch.randn(2, 3, key_heads, 6, 8)
    mask[1, ..., 4:] = mask[2, ..., 1:] = float("-inf")
    repeat = 4 // key_heads
    wide_key, wide_value = (x.repeat_interleave(repeat, 1) for x in (key, value))
    scores = query @ wide_key.transpose(2, 3) * 0.3 + mask
    expected = scores.softmax(-1) @ wide_value
    by_group = masked_by_group(query, key, value, mask, 0.3)
    native, _ = slot_attention(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(by_group, expected)
    torch.testing.assert_close(native, expected.transpose(1, 2))
