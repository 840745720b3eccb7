"""Sequences and memory of an engine, computed without vLLM."""

import pytest
import torch

from modnorm.checkpoint.families import physical_layout
from modnorm.engines.settings import Drafts, EngineSettings
from modnorm.engines.vllm.memory import gpu_sizes, weight_bytes
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


def sizes(total, *, windows=False, **settings):
    return gpu_sizes(
        QWEN, LAYOUT, torch.bfloat16, EngineSettings(**settings), total=total, windows=windows
    )


def test_both_copies_the_noise_and_the_cache_stay_within_the_share():
    copy = weight_bytes(LAYOUT, torch.bfloat16, 1)
    large = sizes(80 * GIB)

    assert copy == 3_087_428_608
    assert 0.75 * 72 * GIB < 2 * copy + GIB + large.cache < 72 * GIB - 3 * GIB
    assert large.share * 80 * GIB == pytest.approx(copy + large.cache)


@pytest.mark.parametrize(
    ("total", "settings", "sequences", "step_tokens"),
    [
        (80, {}, 1024, 8192),
        (80, {"drafts": Drafts.POPULATION}, 1024, 4096),
        (40, {}, 704, 8192),
        (24, {}, 256, 8192),
        (24, {"drafts": Drafts.POPULATION}, 256, 2048),
        (80, {"max_num_seqs": 64}, 64, 8192),
        (80, {"max_num_seqs": 4096}, 4096, 8192),
        (80, {"windows": True}, 1024, 2048),
        (80, {"windows": True, "max_num_seqs": 2049}, 2049, 2049),
        (80, {"max_model_len": 512, "gpu_memory_utilization": 0.3}, 896, 8192),
    ],
)
def test_sequences_follow_memory_unless_the_settings_name_them(
    total, settings, sequences, step_tokens
):
    chosen = sizes(total * GIB, **settings)

    assert (chosen.sequences, chosen.step_tokens) == (sequences, step_tokens)
    assert chosen == sizes(total * GIB, **settings)


def test_a_model_that_does_not_fit_twice_is_refused():
    assert sizes(14 * GIB).cache > 0
    with pytest.raises(IncompatibleError, match=r"2\.9 GiB") as caught:
        sizes(6 * GIB)
    assert "MODNORM_GPU_MEMORY_UTILIZATION" in (caught.value.remedy or "")
    with pytest.raises(IncompatibleError):
        sizes(80 * GIB, gpu_memory_utilization=0.1)


def test_ranks_share_the_weights_and_the_cache():
    assert weight_bytes(LAYOUT, torch.bfloat16, 2) == 3_087_428_608 // 2
    one, two = sizes(40 * GIB), sizes(40 * GIB, tensor_parallel_size=2)
    assert two.cache > one.cache
    assert two.sequences > one.sequences
