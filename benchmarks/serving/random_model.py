"""A model with random weights in the shape of a real model, for measurements of time.

Matrices and biases are normal with a standard deviation of 0.02, norm weights are 1. Logits then
have a standard deviation near 0.8, and stay finite at the radii of the paper. The tokenizer is
that of the bundled model, with an invented word for each missing id.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.shapes import SHAPES
from modnorm.checkpoint.families import PhysicalTensor, physical_layout
from modnorm.checkpoint.reference import resolve_checkpoint

TEMPLATE = "tiny-thicket"
SPREAD = 0.02
_COPIED = ("generation_config.json", "chat_template.jinja", "tokenizer.py")
_SPACE = "\u0120"
"""A space in a byte-level vocabulary."""


def make_model(folder: Path, shape: str, *, seed: int, device: str) -> None:
    """Write a checkpoint with random bfloat16 weights.

    Args:
        folder: Target folder; created if absent.
        shape: A name of `SHAPES`.
        seed: Seed of the weights, which are reproducible on one kind of device.
        device: Device that draws them.
    """
    template = resolve_checkpoint(TEMPLATE).directory
    folder.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copy(template / name, folder / name)
    config = bundled_config(SHAPES[shape]) | {"dtype": "bfloat16"}
    _write(folder / "config.json", config)
    _write(folder / "tokenizer.json", _tokenizer(template, SHAPES[shape]["vocab_size"]))
    settings = json.loads((template / "tokenizer_config.json").read_text())
    settings["model_max_length"] = SHAPES[shape]["max_position_embeddings"]
    _write(folder / "tokenizer_config.json", settings)
    weights = _weights(config, seed, torch.device(device))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def bundled_config(sizes: Mapping[str, int]) -> dict[str, object]:
    """Return the configuration of the bundled model with other sizes."""
    template = resolve_checkpoint(TEMPLATE).directory
    config: dict[str, object] = json.loads((template / "config.json").read_text())
    layers = ["full_attention"] * sizes["num_hidden_layers"]
    return config | dict(sizes) | {"layer_types": layers}


def _tokenizer(template: Path, size: int) -> dict[str, object]:
    tokenizer: dict[str, dict[str, dict[str, int]]] = json.loads(
        (template / "tokenizer.json").read_text()
    )
    words = tokenizer["model"]["vocab"]
    known = set(words.values())
    words.update({f"{_SPACE}w{index}": index for index in range(size) if index not in known})
    return dict(tokenizer)


def _weights(
    config: Mapping[str, object], seed: int, device: torch.device
) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {
        part.name: _drawn(tensor, part.rows, device)
        for tensor in physical_layout(config)
        for part in tensor.parts
    }


def _drawn(tensor: PhysicalTensor, rows: int, device: torch.device) -> torch.Tensor:
    shape = (rows, *tensor.shape[1:])
    if "norm" in tensor.name:
        return torch.ones(shape, dtype=torch.bfloat16)
    return torch.randn(shape, device=device).mul_(SPREAD).to(torch.bfloat16).cpu()


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
