"""More families and windows in vLLM in float32, compared with transformers."""

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import EngineSettings
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.errors import IncompatibleError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from tests.random_models import random_model, vary

SIZES: dict[str, object] = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEADS = {"head_dim": 32}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
SETTINGS: dict[str, dict[str, object]] = {
    "gemma3_text": {**HEADS, "sliding_window": 8, "layer_types": KINDS},
    "mistral": {**HEADS, "sliding_window": 8, "tie_word_embeddings": False},
    "olmo2": {"hidden_size": 128},
    "qwen2": {
        "hidden_size": 128,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 0,
    },
    "qwen3": {**HEADS, "tie_word_embeddings": True},
}
"""Settings of each family beside `SIZES`."""
PROMPTS = [[5, 6, 7], list(range(20, 28)), [3 * i % 997 for i in range(11, 41)]]


def _model(family: str) -> PreTrainedModel:
    torch.manual_seed(3)
    return vary(random_model(family, **{**SIZES, **SETTINGS[family]}))


def _with_second_form(model: PreTrainedModel, checkpoint: Checkpoint) -> Checkpoint:
    """Add the files that Mistral's own folders hold too, and that must not be read."""
    model.save_pretrained(checkpoint.directory, max_shard_size="100KB")
    (checkpoint.directory / "params.json").write_text("{}")
    (checkpoint.directory / "consolidated.safetensors").write_bytes(b"not read")
    return resolve_checkpoint(str(checkpoint.directory))


@pytest.mark.parametrize(
    ("family", "sequences", "step_tokens"),
    # The bound for windows, more sequences than that, or vLLM's own number.
    [
        ("gemma3_text", 2049, "2049"),
        ("mistral", 4, "2048"),
        ("qwen2", 4, "2048"),
        ("qwen3", 4, "512"),
    ],
)
def test_a_family_answers_as_in_transformers(
    family: str,
    sequences: int,
    step_tokens: str,
    make_checkpoint: Callable[[PreTrainedModel], Checkpoint],
    answers: Callable[..., dict[int, str]],
) -> None:
    model = _model(family)
    checkpoint = make_checkpoint(model)
    if family == "mistral":
        checkpoint = _with_second_form(model, checkpoint)
    scale_map = build_scale_map("randopt", checkpoint)
    drawn = Descriptor("portable-v1", 1, scale_map.method, 0.05, scale_map.digest)
    ours = VllmEngine(checkpoint, EngineSettings(max_model_len=128, max_num_seqs=sequences))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        theirs = TransformersEngine(checkpoint)
    try:
        assert ours.environment["step_tokens"] == step_tokens
        base = answers(theirs, PROMPTS)
        assert answers(ours, PROMPTS) == base
        with ours.candidate(drawn, scale_map), theirs.candidate(drawn, scale_map):
            assert ours.weights_sha256() == theirs.weights_sha256()
            assert answers(ours, PROMPTS) == answers(theirs, PROMPTS) != base
    finally:
        ours.close()
        theirs.close()


def test_a_family_without_a_class_of_its_own_is_refused(
    make_checkpoint: Callable[[PreTrainedModel], Checkpoint],
) -> None:
    checkpoint = make_checkpoint(_model("olmo2"))
    with pytest.raises(IncompatibleError, match="use the transformers engine"):
        VllmEngine(checkpoint, EngineSettings(max_model_len=128, max_num_seqs=4))
