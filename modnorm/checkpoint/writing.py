"""Writing of checkpoints and adapters derived from a checkpoint."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from modnorm.checkpoint.checkpoint_files import CARD, SINGLE, load_config, weight_files
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name, rounded, weights_sha256
from modnorm.errors import ConflictError, UnavailableError
from modnorm.files import DRAFTS, own_draft, remove_old_drafts, write_fault

_CONFIG = "config.json"
_DTYPE_KEYS = ("dtype", "torch_dtype")
"""The key in transformers 5 and in older versions."""
_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt"),
    *(".h5", ".msgpack", ".ot", ".onnx", ".gguf"),
    ".index.json",
)
"""Name endings of weights in any framework; old weights must not lie beside new ones."""
_TEMPLATES = "additional_chat_templates"
"""The only folder of a checkpoint that its tokenizer reads."""


def require_new(directory: Path) -> None:
    """Refuse a target directory that is not empty or cannot be written.

    Drafts of killed processes are removed.
    """
    try:
        remove_old_drafts(_home(directory).glob(DRAFTS))
        if directory.exists() and any(directory.iterdir()):
            raise ConflictError(
                f"{directory} is not empty",
                field="out",
                remedy="name another directory, or remove this one",
            )
        if directory.is_symlink() and not directory.exists():
            raise FileNotFoundError(ENOENT, "it is a link to a missing file")
        _draft(directory).rmdir()
    except OSError as error:
        raise write_fault(directory, error) from error


def write_checkpoint(
    stored: CheckpointWeights,
    tensors: Mapping[str, torch.Tensor],
    others: Mapping[str, torch.Tensor],
    directory: Path,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write weights and copy all other files of the original checkpoint."""
    dtype = next(iter(tensors.values())).dtype
    with atomic_directory(directory) as draft:
        weights = weight_files(stored.directory)
        files = [*stored.directory.iterdir(), *(stored.directory / _TEMPLATES).glob("*")]
        for path in sorted(files):
            if path.is_file() and path.name not in weights and not path.name.endswith(_WEIGHTS):
                copy = draft / path.relative_to(stored.directory)
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, copy)
        content = load_config(draft / _CONFIG)
        changed = _with_dtype(content, dtype_name(dtype))
        if changed != content:
            text = json.dumps(changed, indent=2)
            (draft / _CONFIG).write_text(f"{text}\n", encoding="utf-8")
        for name, text in (notes or {}).items():
            (draft / name).write_text(text, encoding="utf-8")
        save_tensors({**others, **_parts(stored, tensors)}, draft / SINGLE, like=draft / _CONFIG)


def save_tensors(tensors: Mapping[str, torch.Tensor], file: Path, *, like: Path) -> None:
    """Write a safetensors file with the access rights of another file."""
    save_file(dict(tensors), file, metadata={"format": "pt"})
    file.chmod(like.stat().st_mode & 0o777)


@contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield a draft directory and move its content to the target at the end."""
    draft = None
    try:
        draft = _draft(directory)
        yield draft
        _put_in_place(draft, directory)
    except (OSError, SafetensorError) as error:
        raise UnavailableError(
            f"cannot write {directory}: {error}",
            field="out",
            remedy="free disk space or name another directory; nothing was left behind",
        ) from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _draft(directory: Path) -> Path:
    """Create a draft directory on the target's file system."""
    draft = own_draft(_home(directory) / directory.absolute().name)
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.mkdir()
    return draft


def _home(directory: Path) -> Path:
    """Return the directory of the drafts, which is on the target's file system."""
    return directory.absolute() if directory.exists() else directory.absolute().parent


def _put_in_place(draft: Path, directory: Path) -> None:
    """Rename the draft to the target, or move its files, the weights last."""
    directory.mkdir(exist_ok=True)  # to learn the usual mode of directories
    if draft.parent != directory.absolute():
        draft.chmod(directory.stat().st_mode & 0o777)
        draft.rename(directory)
        return
    for path in sorted(draft.iterdir(), key=lambda path: path.suffix == ".safetensors"):
        path.rename(directory / path.name)


def _with_dtype(content: Mapping[str, object], dtype: str) -> dict[str, object]:
    """Return a configuration with another dtype where it states one, also for its decoder."""
    return {
        name: dtype
        if name in _DTYPE_KEYS and value is not None
        else _with_dtype(value, dtype)
        if isinstance(value, dict)
        else value
        for name, value in content.items()
    }


def _parts(
    stored: CheckpointWeights, tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, each in separate memory."""
    parts: dict[str, torch.Tensor] = {}
    for tensor in stored.layout:
        rows = [part.rows for part in tensor.parts]
        pieces = torch.split(tensors[tensor.name], rows) if tensor.shape else ()
        for part, piece in zip(tensor.parts, pieces, strict=True):
            parts[stored.stored_name(part.name)] = piece.clone()
    return parts


def cast_checkpoint(checkpoint: Checkpoint, dtype: torch.dtype, directory: Path) -> str:
    """Write a checkpoint in another dtype; return its tensors' SHA-256 as engines compute it."""
    require_new(directory)
    stored = CheckpointWeights(checkpoint, cast_to=dtype)
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    others = {
        name: rounded(name, values, dtype) if values.is_floating_point() else values
        for name, values in stored.other_tensors()
    }
    card, notes = stored.directory / CARD, {}
    if card.is_file():
        text = card.read_text(encoding="utf-8", errors="replace")
        name = dtype_name(dtype)
        notes[CARD] = (
            f"{text}\n## Cast\n\n`modnorm cast` wrote the weights in {name}. This card, and the "
            "files that it names, describe the weights before the cast.\n"
        )
    write_checkpoint(stored, tensors, others, directory, notes)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
