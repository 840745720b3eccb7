"""vLLM's share of a GPU's memory, computed without vLLM."""

import pytest
import torch

from modnorm.checkpoint.families import physical_layout
from modnorm.engines.vllm.memory import (
    cpu_cache_bytes,
    parked_sequences,
    vllm_share,
    weight_bytes,
)
from modnorm.errors import IncompatibleError

GIB = 2**30
QWEN = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 28,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
LAYOUT = physical_layout(QWEN)


def share(total, *, utilization=0.9, ranks=1):
    return vllm_share(LAYOUT, torch.bfloat16, total=total, utilization=utilization, ranks=ranks)


def test_both_copies_and_the_noise_stay_within_the_share():
    copy = weight_bytes(LAYOUT, torch.bfloat16, 1)

    assert copy == 3_087_428_608
    assert share(80 * GIB) * 80 * GIB + copy + GIB == pytest.approx(0.9 * 80 * GIB)


def test_a_model_that_does_not_fit_twice_is_refused():
    assert share(9 * GIB) > 0
    with pytest.raises(IncompatibleError, match=r"2\.9 GiB") as caught:
        share(6 * GIB)
    assert "MODNORM_GPU_MEMORY_UTILIZATION" in (caught.value.remedy or "")
    with pytest.raises(IncompatibleError):
        share(80 * GIB, utilization=0.1)


def test_ranks_share_the_weights():
    assert weight_bytes(LAYOUT, torch.bfloat16, 2) == 3_087_428_608 // 2
    assert share(6 * GIB, ranks=4) > 0


def test_logits_of_parked_sequences_take_a_small_share():
    words = 151_936

    assert parked_sequences(words, 1024, total=80 * GIB) == 1024
    few = parked_sequences(words, 1024, total=20 * GIB)
    assert 0 < few * words * 4 <= 0.02 * 20 * GIB
    assert parked_sequences(words, 0, total=80 * GIB) == 0


def test_the_cache_on_a_host_is_bounded():
    few = cpu_cache_bytes(QWEN, torch.bfloat16, length=512, sequences=2)

    assert few == 2 * 28 * 256 * 2 * 128 * (4 * 2 + 1)
    assert cpu_cache_bytes(QWEN, torch.float32, length=32768, sequences=256) == 4 * GIB
