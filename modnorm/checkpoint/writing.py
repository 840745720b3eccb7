"""Writing a checkpoint that was made from another."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from modnorm.checkpoint.config import load_config
from modnorm.checkpoint.files import SINGLE, weight_files
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError

_CONFIG = "config.json"
_DTYPE_KEYS = ("dtype", "torch_dtype")
"""As transformers 5 and those before call it."""
_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt"),
    *(".h5", ".msgpack", ".ot", ".onnx", ".gguf"),
    ".index.json",
)
"""How the names of weights end, in any framework: beside new ones they would be another model."""
_TEMPLATES = "additional_chat_templates"
"""The one folder of a checkpoint that its tokenizer reads."""


def require_new(directory: Path) -> None:
    """Make sure that nothing would be mixed with what is written, and that it can be written.

    Raises:
        ConflictError: there is something in the directory.
        InvalidInputError: it cannot be made or written.
    """
    try:
        if directory.exists() and any(directory.iterdir()):
            raise ConflictError(
                f"{directory} is not empty", field="out", remedy="name a new directory"
            )
        if directory.is_symlink() and not directory.exists():
            raise FileNotFoundError(ENOENT, "it is a link to what is not there")
        _draft(directory).rmdir()
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {directory}: {error.strerror}",
            field="out",
            remedy="name a directory that can be written",
        ) from error


def write_checkpoint(
    stored: CheckpointWeights,
    tensors: Mapping[str, torch.Tensor],
    around: Mapping[str, torch.Tensor],
    directory: Path,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write weights, and beside them every file of another checkpoint that is not weights.

    Args:
        stored: Whose configuration, tokenizer and names it has; the dtype is that of the tensors.
        tensors: Each physical tensor by its name, all in one dtype, on the CPU.
        around: What lies around the decoder, under the names that it is stored by.
        directory: Where it goes; see `require_new`.
        notes: Texts that are put beside the weights, by file name.

    Raises:
        UnavailableError: it could not be written, to a full disk for instance.
    """
    dtype = next(iter(tensors.values())).dtype
    with _whole_or_nothing(directory) as draft:
        _copy_files(stored.directory, draft)
        _declare(draft / _CONFIG, str(dtype).removeprefix("torch."))
        for name, text in (notes or {}).items():
            (draft / name).write_text(text, encoding="utf-8")
        contents = {**around, **_parts(stored, tensors)}
        save_file(contents, draft / SINGLE, metadata={"format": "pt"})
        # safetensors makes its file readable for its owner alone.
        (draft / SINGLE).chmod((draft / _CONFIG).stat().st_mode & 0o777)


@contextmanager
def _whole_or_nothing(directory: Path) -> Iterator[Path]:
    """Give a directory to write in, whose files are those of another at the end.

    Raises:
        UnavailableError: something could not be written; nothing is left of the rest.
    """
    draft = None
    try:
        draft = _draft(directory)
        yield draft
        _put_in_place(draft, directory)
    except (OSError, SafetensorError) as error:
        raise UnavailableError(
            f"cannot write {directory}: {error}",
            field="out",
            remedy="make room or name another place; nothing half-written was left",
        ) from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _draft(directory: Path) -> Path:
    """Make a directory for drafts on the file system of another one.

    One that is there may be the root of a volume, which nothing can be renamed to: then it lies
    inside.
    """
    target = directory.absolute()
    home = target if target.exists() else target.parent
    home.mkdir(parents=True, exist_ok=True)
    return Path(mkdtemp(prefix=f".{target.name}-", dir=home))


def _put_in_place(draft: Path, directory: Path) -> None:
    """Rename a draft, or its files: the weights, without which it is no checkpoint, last."""
    directory.mkdir(exist_ok=True)  # has the mode that directories usually have
    if draft.parent != directory.absolute():
        draft.chmod(directory.stat().st_mode & 0o777)
        draft.rename(directory)
        return
    for path in sorted(draft.iterdir(), key=lambda path: path.name == SINGLE):
        path.rename(directory / path.name)


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


def _parts(
    stored: CheckpointWeights, tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, each in memory of its own."""
    found: dict[str, torch.Tensor] = {}
    for tensor in stored.layout:
        rows = [part.rows for part in tensor.parts]
        pieces = torch.split(tensors[tensor.name], rows) if tensor.shape else ()
        for part, piece in zip(tensor.parts, pieces, strict=True):
            found[stored.stored_name(part.name)] = piece.clone()
    return found


def _copy_files(source: Path, target: Path) -> None:
    weights = weight_files(source)
    files = [*source.iterdir(), *(source / _TEMPLATES).glob("*")]
    for path in sorted(files):
        if path.is_file() and path.name not in weights and not path.name.endswith(_WEIGHTS):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
