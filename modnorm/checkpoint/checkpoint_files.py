"""The files of a checkpoint directory, and their digests."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from modnorm.errors import IncompatibleError, InvalidInputError, PreconditionError
from modnorm.files import read_fault, read_text

Config = Mapping[str, object]

MAX_JSON_BYTES = 64 * 2**20
"""Size limit of a JSON file; the index of a model with 400 billion weights has 0.1 MB."""
MAX_LAYERS, MAX_HEADS, MAX_WIDTH = 1_000, 2**12, 2**20
MAX_VOCABULARY, MAX_POSITIONS = 2**24, 2**30
_MOST: Mapping[str, int] = {
    "num_hidden_layers": MAX_LAYERS,
    "num_attention_heads": MAX_HEADS,
    "num_key_value_heads": MAX_HEADS,
    "head_dim": MAX_WIDTH,
    "hidden_size": MAX_WIDTH,
    "intermediate_size": MAX_WIDTH,
    "vocab_size": MAX_VOCABULARY,
    "max_position_embeddings": MAX_POSITIONS,
}
"""Bounds above every real model: these sizes build a layout before any weight is read."""


def load_config(path: Path) -> Config:
    file = path / "config.json" if path.is_dir() else path
    data = load_json(file)
    if not isinstance(data, dict):
        raise InvalidInputError(f"{file} is not a JSON object", field="model.name")
    return data


def load_json(file: Path) -> object:
    try:
        return json.loads(read_text(file, most=MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"cannot read {file}: {read_fault(error)}", field="model.name"
        ) from error


def positive(config: Config, key: str) -> int:
    """Return a required positive integer."""
    value = optional_positive(config, key)
    if value is None:
        raise InvalidInputError(f"config.json lacks {key}", field=f"model.config.{key}")
    return value


def optional_positive(config: Config, key: str) -> int | None:
    """Return a positive integer, or None if the key is absent or null."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(
            f"{key} must be a positive integer, not {value!r}", field=f"model.config.{key}"
        )
    if value > _MOST.get(key, value):
        raise InvalidInputError(
            f"{key} is {value:,}; no supported model has more than {_MOST[key]:,}",
            field=f"model.config.{key}",
        )
    return value


def flag(config: Config, key: str) -> bool:
    """Return a boolean; absent or null means false."""
    value = config.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidInputError(
            f"{key} must be true or false, not {value!r}", field=f"model.config.{key}"
        )
    return value


FULL, SLIDING = "full_attention", "sliding_attention"
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
_BY_BATCH = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose angles depend on the longest sequence of the batch."""


def check_attention(config: Mapping[str, object]) -> None:
    """Refuse attention that the slot cache cannot decode."""
    for cap in _CAPS:
        if config.get(cap) is not None:
            raise _refusal(cap, f"the slot cache cannot decode a model with {cap}")
    if config.get("use_bidirectional_attention"):
        raise _refusal("use_bidirectional_attention", "the slot cache needs causal attention")
    layers = config.get("layer_types")
    if isinstance(layers, list) and (odd := sorted({*map(str, layers)} - {FULL, SLIDING})):
        raise _refusal("layer_types", f"the slot cache cannot decode layers of {odd}")
    for key, kind in _rope_types(config):
        if kind in _BY_BATCH:
            raise _refusal(key, f"rotary embedding {kind!r} depends on the rest of the batch")


def _rope_types(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield key and type of each rotary embedding, in the forms of transformers 4 and 5."""
    for key in ("rope_parameters", "rope_scaling"):
        settings = config.get(key)
        if isinstance(settings, Mapping):
            for each in (settings, *settings.values()):
                if isinstance(each, Mapping):
                    yield key, each.get("rope_type", each.get("type"))


def _refusal(key: str, reason: str) -> IncompatibleError:
    return IncompatibleError(
        reason,
        field=f"model.config.{key}",
        remedy="use another model, or vLLM where it supports this one",
    )


SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
CARD = "README.md"
"""The model card."""
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
    try:
        is_adapter = (directory / ADAPTER).is_file()
    except OSError as error:
        raise _unreadable(directory, error) from error
    if is_adapter:
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
            raise _unreadable(directory, error) from error
    return names


def _unreadable(directory: Path, error: OSError) -> InvalidInputError:
    place = error.filename or directory  # a fault of the disk names no file
    return InvalidInputError(f"cannot read {place}: {error.strerror}", field="model.name")


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
    try:
        with ThreadPoolExecutor() as threads:
            contents = [*threads.map(lambda name: file_digest(directory / name), ordered)]
    except OSError as error:
        raise _unreadable(directory, error) from error
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
