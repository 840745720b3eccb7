"""Small random checkpoints, written by transformers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.random_models import random_model

SaveModel = Callable[..., Path]
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
ODD_SIZES = {**SIZES, "head_dim": 12, "vocab_size": 70}
"""Sizes with a head dimension that does not follow from the others."""


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """Write a random model and return its directory."""

    def save(
        model_type: str = "qwen2",
        *,
        dtype: torch.dtype = torch.bfloat16,
        shard: str = "1GB",
        **settings: object,
    ) -> Path:
        torch.manual_seed(7)
        model = random_model(model_type, **{**SIZES, **settings})
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        torch.nn.Module.to(model, dtype)
        model.save_pretrained(tmp_path, max_shard_size=shard)
        return tmp_path

    return save


@pytest.fixture
def edit_config() -> Callable[..., None]:
    """Change keys of a `config.json`; None removes a key."""

    def edit(directory: Path, **changes: object) -> None:
        file = directory / "config.json"
        merged = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({k: v for k, v in merged.items() if v is not None}))

    return edit
