import json

import pytest
import torch

from modnorm.calibration.maps import PRE_NORM
from modnorm.calibration.profile import APPLICATION, METHOD
from modnorm.checkpoint.reference import resolve_checkpoint
from tests.random_models import random_model

SIZES = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 20,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
}


@pytest.fixture
def small_model():
    """Return a random float32 model with eager attention."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = random_model("qwen2", **SIZES, tie_word_embeddings=True)
    model.set_attn_implementation("eager")
    return model


@pytest.fixture
def small_checkpoint(small_model, tmp_path):
    """Return the random model on disk."""
    directory = tmp_path / "small"
    small_model.save_pretrained(directory)
    return resolve_checkpoint(str(directory))


@pytest.fixture
def document():
    """Return a valid profile of two layers, version 2, with the fields of published files."""

    def entry(value):
        return {
            "value": value,
            "summary": {"count": 2, "min": value, "median": value, "max": value},
        }

    return {
        "schema_version": 2,
        "method": METHOD,
        "model_name": "somebody/Small-Instruct",
        "dataset": "countdown",
        "num_layers": 2,
        "calibration": {"num_examples": 4, "elapsed_sec": 1.25},
        "application": json.loads(json.dumps(dict(APPLICATION))),
        "global": {"final_norm": entry(2.5)},
        "layers": {
            str(layer): {
                metric: entry(layer + k + 0.5) for k, metric in enumerate(PRE_NORM.metrics)
            }
            for layer in range(2)
        },
        "notes": ["made by hand"],
    }
