"""Tiny random models of newer families in the transformers engine.

If a family has windows, some layers have a window of 8 tokens. All models have heads larger than
hidden size over heads, and a vocabulary that is no multiple of 64.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.engines.causal import ATTENTION, CausalModel, masked_by_head, slot_attention
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.methods import build_scale_map
from tests.random_models import random_model, vary, wrap

VOCABULARY = 1030
WINDOW = 8
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
SIZES: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
WINDOWS: dict[str, object] = {"sliding_window": WINDOW, "layer_types": KINDS}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
PROMPTS = [[5, 6, 7], list(range(20, 28)), [3 * i % 997 for i in range(11, 41)]]
TOKENS = 14


YARN = {
    "rope_type": "yarn",
    "rope_theta": 5e5,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROPES = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
UNTIED: dict[str, object] = {"tie_word_embeddings": False}
MODELS: dict[str, dict[str, object]] = {
    "gemma3_text": WINDOWS,
    "mistral": {"sliding_window": WINDOW, **UNTIED},
    "olmo2": UNTIED,
    "olmo3": {**WINDOWS, "rope_parameters": ROPES, **UNTIED},
    "qwen3": {"tie_word_embeddings": True},
}
"""Settings of each family beside `SIZES`."""


def save(model: PreTrainedModel, directory: Path) -> Path:
    model.save_pretrained(directory)
    bundled = resolve_checkpoint("tiny-thicket").directory
    for name in TOKENIZER:
        shutil.copy(bundled / name, directory / name)
    return directory


def seeded(family: str, **changes: object) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return vary(random_model(family, **{**SIZES, **MODELS[family], **changes}))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Checkpoint]:
    made = {name: save(seeded(name), tmp_path_factory.mktemp(name)) for name in MODELS}
    gemma = tmp_path_factory.mktemp("gemma3")
    made["gemma3"] = wrap(save(seeded("gemma3_text"), gemma))
    return {name: resolve_checkpoint(str(directory)) for name, directory in made.items()}


@pytest.fixture(scope="module", params=[*MODELS, "gemma3"])
def checkpoint(
    request: pytest.FixtureRequest, checkpoints: Mapping[str, Checkpoint]
) -> Checkpoint:
    return checkpoints[request.param]


@pytest.fixture(scope="module")
def engine(on_cpu: None, checkpoint: Checkpoint) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(checkpoint)
    yield engine
    engine.close()


def texts(engine: TransformersEngine, prompts: list[list[int]]) -> list[str]:
    done = engine.generate(prompts, GenerationLimits(max_tokens=TOKENS))
    return [one.text for one in sorted(done, key=lambda one: one.index)]


def generated(model: Any, checkpoint: Checkpoint, prompt: list[int]) -> str:
    """Return the answer of transformers' own `generate` to one prompt."""
    output = model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=TOKENS,
        do_sample=False,
        eos_token_id=2,
    )
    return PromptEncoder(checkpoint).decode(output[0, len(prompt) :].tolist())


def test_answers_are_those_of_transformers_own_generate(
    engine: TransformersEngine, checkpoint: Checkpoint, checkpoints: Mapping[str, Checkpoint]
) -> None:
    name = str(checkpoint.config["model_type"]).replace("gemma3_text", "gemma3")
    directory = checkpoints["gemma3_text" if name == "gemma3" else name].directory
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
    expected = [generated(model, checkpoint, prompt) for prompt in PROMPTS]
    assert texts(engine, PROMPTS) == expected
    assert texts(engine, PROMPTS[2:]) == expected[2:]
    alike = [[*PROMPTS[2], *prompt] for prompt in PROMPTS]
    assert texts(engine, alike) == [generated(model, checkpoint, prompt) for prompt in alike]


@pytest.mark.parametrize(("family", "wide_window"), [("gemma3_text", 200), ("mistral", None)])
def test_the_windows_of_these_models_matter(
    checkpoints: Mapping[str, Checkpoint], tmp_path: Path, family: str, wide_window: int | None
) -> None:
    narrow = TransformersEngine(checkpoints[family])
    wide = save(seeded(family, sliding_window=wide_window), tmp_path)
    other = TransformersEngine(resolve_checkpoint(str(wide)))
    assert narrow.weights_sha256() == other.weights_sha256()
    assert texts(narrow, PROMPTS[2:]) != texts(other, PROMPTS[2:])


def modular(checkpoint: Checkpoint) -> ScaleMap:
    maps = ("attention_module", "mlp_module", "q_norm", "k_norm")
    outputs = ("attention_output_norm", "mlp_output_norm")
    return build_scale_map(
        "modular_norm",
        checkpoint,
        sensitivities=[dict.fromkeys((*maps, *outputs), 0.7 + layer) for layer in range(3)],
    )


def test_a_candidate_is_the_fused_one_and_the_base_comes_back(
    engine: TransformersEngine, checkpoint: Checkpoint
) -> None:
    stored = CheckpointWeights(checkpoint)
    base = weights_sha256(stored.layout, stored.read)
    scale_map = modular(checkpoint)
    descriptor = Descriptor("portable-v1", 11, scale_map.method, 0.3, scale_map.digest)
    views = {
        tensor.name: [WeightView(stored.read(tensor), Block.whole(tensor.shape))]
        for tensor in stored.layout
    }
    fused = CandidateWeights(stored.layout, views, model_digest=checkpoint.digest)
    resolved = fused.apply(descriptor, scale_map)

    assert engine.weights_sha256() == base
    with engine.candidate(descriptor, scale_map) as held:
        assert held == resolved
        assert engine.weights_sha256() == fused.sha256() != base
    assert engine.weights_sha256() == base


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("use_bidirectional_attention", True),
        ("sliding_window", None),
        ("layer_types", ["full_attention", "chunked_attention"]),
        ("model_type", "llama"),
        ("rope_parameters", {"full_attention": {"rope_type": "dynamic"}}),
    ],
)
def test_unsupported_models_are_refused(
    checkpoints: Mapping[str, Checkpoint], setting: str, value: object
) -> None:
    directory = checkpoints["gemma3_text"].directory
    config = AutoConfig.from_pretrained(directory)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    CausalModel(model)
    object.__setattr__(model.config, setting, value)
    with pytest.raises(IncompatibleError):
        CausalModel(model)


def test_a_window_without_layer_types_is_refused_unless_the_model_takes_it(
    checkpoints: Mapping[str, Checkpoint],
) -> None:
    config = AutoConfig.from_pretrained(checkpoints["olmo2"].directory)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    CausalModel(model)
    model.config.sliding_window = WINDOW
    with pytest.raises(IncompatibleError, match="window of 8"):
        CausalModel(model)


def test_masked_prompts_attend_alike_by_head_and_by_group() -> None:
    torch.manual_seed(2)
    query, mask = torch.randn(3, 4, 6, 8), torch.zeros(1, 1, 6, 6)
    key, value = torch.randn(2, 3, 2, 6, 8)
    mask.masked_fill_(torch.ones(6, 6).tril().logical_not(), float("-inf"))
    native, _ = slot_attention(torch.nn.Identity(), query, key, value, mask, scaling=0.3)
    by_head = masked_by_head(query, key, value, mask, 0.3)
    torch.testing.assert_close(by_head.transpose(1, 2), native)
