"""Writing a checkpoint that was made from another."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from modnorm.checkpoint.config import load_config
from modnorm.checkpoint.files import INDEX, SINGLE, weight_files
from modnorm.checkpoint.layout import Layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import ConflictError

_CONFIG = "config.json"
_DTYPE_KEYS = ("dtype", "torch_dtype")
"""As transformers 5 and those before call it."""
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth"}


def require_new(directory: Path) -> None:
    """Make sure that nothing would be mixed with what is written.

    Raises:
        ConflictError: there is something in the directory.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ConflictError(
            f"{directory} is not empty", field="out", remedy="name a new directory"
        )


def write_checkpoint(
    source: Checkpoint,
    layout: Layout,
    tensors: Mapping[str, torch.Tensor],
    directory: Path,
) -> None:
    """Write weights, and beside them every file of another checkpoint that is not weights.

    Args:
        source: Whose configuration and tokenizer it has; the dtype is that of the tensors.
        layout: All physical tensors.
        tensors: Each by its name, all in one dtype, on the CPU.
        directory: Where it goes; see `require_new`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _copy_files(source.directory, directory)
    dtype = next(iter(tensors.values())).dtype
    _declare(directory / _CONFIG, str(dtype).removeprefix("torch."))
    save_file(_parts(layout, tensors), directory / SINGLE, metadata={"format": "pt"})


def _declare(config: Path, dtype: str) -> None:
    """Have a configuration that tells a dtype, its own or its decoder's, tell this one."""
    content = load_config(config)
    changed = _declaring(content, dtype)
    if changed != content:
        config.write_text(json.dumps(changed, indent=2) + "\n", encoding="utf-8")


def _declaring(content: Mapping[str, object], dtype: str) -> dict[str, object]:
    return {
        name: dtype
        if name in _DTYPE_KEYS and value is not None
        else _declaring(value, dtype)
        if isinstance(value, dict)
        else value
        for name, value in content.items()
    }


def _parts(layout: Layout, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, each in memory of its own."""
    found: dict[str, torch.Tensor] = {}
    for tensor in layout:
        rows = [part.rows for part in tensor.parts]
        pieces = torch.split(tensors[tensor.name], rows) if tensor.shape else ()
        for part, piece in zip(tensor.parts, pieces, strict=True):
            found[part.name] = piece.clone()
    return found


def _copy_files(source: Path, target: Path) -> None:
    weights = {*weight_files(source), INDEX}
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in weights and path.suffix not in _WEIGHTS:
            shutil.copyfile(path, target / path.name)
