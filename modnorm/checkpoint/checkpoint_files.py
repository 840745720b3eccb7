"""The files of a checkpoint directory, and their digests."""

import hashlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from modnorm.checkpoint.config import load_json
from modnorm.errors import InvalidInputError, PreconditionError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
METADATA = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/default.jinja",
    "tokenizer.*.json",
)
"""Patterns of the other files that decide a model's answers.

The last two replace others in transformers: the template replaces `chat_template.jinja`, and a
tokenizer listed in `fast_tokenizer_files` of `tokenizer_config.json` replaces `tokenizer.json`.
"""


def refuse_adapter(directory: Path) -> None:
    """Refuse a directory with an adapter, alone or beside a model."""
    if (directory / ADAPTER).is_file():
        raise InvalidInputError(
            f"{directory} holds an adapter ({ADAPTER}): transformers adds it to the weights "
            "if peft is installed, and vLLM does not",
            field="model.name",
            remedy="merge it into its base, and save that without the adapter's files",
        )


def weight_files(directory: Path) -> tuple[str, ...]:
    """Return the names of the safetensors files in use, sorted."""
    names = _weight_names(directory)
    for name in names:
        try:
            (directory / name).open("rb").close()
        except OSError as error:
            raise InvalidInputError(
                f"cannot read {directory / name}: {error.strerror}", field="model.name"
            ) from error
    return names


def _weight_names(directory: Path) -> tuple[str, ...]:
    """Return the names of a checkpoint's safetensors files."""
    if (directory / SINGLE).is_file():
        return (SINGLE,)
    if not (directory / INDEX).is_file():
        raise InvalidInputError(
            f"{directory} has neither {SINGLE} nor {INDEX}",
            field="model.name",
            remedy="save the model with save_pretrained, which writes safetensors",
        )
    shards = shard_names(directory)
    for shard in shards:
        if Path(shard).name != shard or not (directory / shard).is_file():
            raise InvalidInputError(
                f"{INDEX} names {shard!r}, which is not a file of {directory}", field="model.name"
            )
    return shards


def shard_names(directory: Path) -> tuple[str, ...]:
    """Return the files that the index names, existing or not, sorted."""
    index = load_json(directory / INDEX)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidInputError(f"{INDEX} has no weight_map", field="model.name")
    return tuple(sorted(set(map(str, weight_map.values()))))


def checkpoint_digest(directory: Path) -> str:
    """Return SHA-256 over names and contents of all files that decide the model's answers."""
    return _digest_of(directory, {*_metadata_names(directory), *weight_files(directory)})


def metadata_digest(directory: Path) -> str:
    """Return SHA-256 over names and contents of the files besides the weights."""
    return _digest_of(directory, _metadata_names(directory))


def _metadata_names(directory: Path) -> set[str]:
    paths = (path for pattern in METADATA for path in directory.glob(pattern))
    return {path.relative_to(directory).as_posix() for path in paths if path.is_file()}


def _digest_of(directory: Path, names: Collection[str]) -> str:
    """Digest files, read in parallel: one thread hashes less than two gigabytes a second."""
    ordered = sorted(names)
    with ThreadPoolExecutor() as threads:
        contents = threads.map(lambda name: file_digest(directory / name), ordered)
    lines = (f"{name}\0{content}\n" for name, content in zip(ordered, contents, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def require_unchanged(directory: Path, digest: str) -> None:
    """Refuse a checkpoint whose files were replaced."""
    current = checkpoint_digest(directory)
    if current != digest:
        raise PreconditionError(
            f"{directory} was model {digest[:12]}, and is model {current[:12]} now",
            field="model.name",
            remedy="put the other model into another directory",
        )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, cached while its size and modification time are the same."""
    status = path.stat()
    return _file_digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _file_digest(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
