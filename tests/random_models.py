"""Random models of any family."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    PreTrainedModel,
)

VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA_4B = {
    "model_type": "gemma3",
    "eos_token_id": [1, 106],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152},
}
"""A configuration as published, without defaults."""


def random_model(family: str, **settings: object) -> PreTrainedModel:
    """Return a float32 model of a family, with some settings of its configuration.

    That of `gemma3` is a whole one, whose vocabulary has 70 tokens or more.
    """
    if family == "gemma3":
        return Gemma3ForConditionalGeneration(
            Gemma3Config(
                text_config=settings,
                vision_config=VISION,
                mm_tokens_per_image=4,
                image_token_index=69,
            )
        )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **settings)
    )
    return model


def vary(model: PreTrainedModel) -> PreTrainedModel:
    """Make norms matter, and the attended tokens decide instead of the last one."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.add_(torch.linspace(-0.3, 0.4, parameter.numel()))
        elif "embed_tokens" in name:
            parameter.data.mul_(0.03)
    return model


def wrap(directory: Path, prefix: str = "language_model.model.") -> Path:
    """Make the checkpoint of a tied text model the decoder of a multimodal one."""
    file, config = directory / "model.safetensors", directory / "config.json"
    stored = {
        name.replace("model.", prefix, 1): tensor for name, tensor in load_file(file).items()
    }
    stored["vision_tower.embeddings.weight"] = torch.ones(3, dtype=torch.float16)
    save_file(stored, file, metadata={"format": "pt"})
    text = json.loads(config.read_text())
    outer = {"model_type": "gemma3", "dtype": text["dtype"], "eos_token_id": [2, 5]}
    config.write_text(json.dumps({**outer, "text_config": {**text, "eos_token_id": 1}}))
    return directory
