"""Physical tensors read from a checkpoint."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from modnorm.checkpoint.checkpoint_files import require_unchanged, weight_files
from modnorm.checkpoint.families import Layout, PhysicalTensor, family_of, physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import IncompatibleError, InvalidInputError

_DTYPES: Mapping[str, torch.dtype] = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
}
_CASTABLE = {*_DTYPES, "F64"}
"""Dtypes whose numbers are the weights; those of others may be codes of a quantisation."""
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_BUFFER = "rotary_emb.inv_freq"
"""A rotary table in old Llama checkpoints; it is no parameter."""


class CheckpointWeights:
    """The weights of a checkpoint, read and fused on demand without a cache.

    Each is rounded to `cast_to`; by default all must have the dtype that `config.json` states.
    """

    def __init__(self, checkpoint: Checkpoint, cast_to: torch.dtype | None = None) -> None:
        self._cast_to = cast_to
        self.layout: Layout = physical_layout(checkpoint.config)
        self.directory: Path = checkpoint.directory
        self._family = family_of(checkpoint.config)
        self._place_of: dict[str, tuple[str, str]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        self._other_tensors: dict[str, str] = {}
        for shard in weight_files(checkpoint.directory):
            with _open(self.directory / shard) as stored:
                for stored_name in stored.keys():  # noqa: SIM118 - no mapping
                    name = self._family.decoder_name(stored_name)
                    if name is None:
                        self._other_tensors[stored_name] = shard
                        continue
                    if name.endswith(_BUFFER):
                        continue
                    if name in self._place_of:
                        raise _mismatch(f"the checkpoint has {name} twice, once as {stored_name}")
                    header = stored.get_slice(stored_name)
                    self._place_of[name] = shard, stored_name
                    self._shapes[name] = tuple(header.get_shape())
                    self._dtypes[name] = header.get_dtype()
                    _require_plain(name, self._dtypes[name])
        self._check_names()
        for tensor in self.layout:
            for part in tensor.parts:
                expected = (part.rows, *tensor.shape[1:])
                if self._shapes[part.name] != expected:
                    raise _mismatch(
                        f"{part.name} is stored as {self._shapes[part.name]}, "
                        f"config.json requires {expected}"
                    )
        self.dtype: torch.dtype = cast_to or self._common_dtype(checkpoint.config)

    def read(self, tensor: PhysicalTensor) -> torch.Tensor:
        """Return a physical tensor: its parts stacked along the first dimension."""
        parts = [self._load(part.name) for part in tensor.parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def read_unchanged(
        self, digest: str, tensors: Iterable[PhysicalTensor]
    ) -> Iterator[torch.Tensor]:
        """Yield tensors, and check before and after that the files were not replaced."""
        require_unchanged(self.directory, digest)
        for tensor in tensors:
            yield self.read(tensor)
        require_unchanged(self.directory, digest)

    def stored_name(self, part: str) -> str:
        """Return the name of a decoder's tensor in the file, which may be a multimodal model."""
        return self._place_of[part][1]

    def other_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield names and tensors that are not the decoder's, such as a vision tower."""
        for stored_name, shard in self._other_tensors.items():
            with _open(self.directory / shard) as stored:
                yield stored_name, stored.get_tensor(stored_name)

    def _load(self, name: str) -> torch.Tensor:
        shard, stored_name = self._place_of[name]
        with _open(self.directory / shard) as stored:
            values: torch.Tensor = stored.get_tensor(stored_name)
        return values if self._cast_to is None else rounded(name, values, self._cast_to)

    def _check_names(self) -> None:
        expected = {part.name for tensor in self.layout for part in tensor.parts}
        stored = set(self._place_of)
        if missing := sorted(expected - stored):
            raise _mismatch(f"the checkpoint lacks {missing[0]}")
        surplus = sorted(stored - expected)
        if surplus == [_HEAD] and self._head_repeats_embedding():
            return
        if surplus == [_HEAD]:
            raise _mismatch(f"tie_word_embeddings is set, yet {_HEAD} differs from {_EMBEDDING}")
        if surplus:
            raise _mismatch(f"the checkpoint has {surplus[0]}, which its family does not")

    def _head_repeats_embedding(self) -> bool:
        if self._shapes[_HEAD] != self._shapes[_EMBEDDING]:
            return False
        head, embedding = self._load(_HEAD), self._load(_EMBEDDING)
        return head.dtype == embedding.dtype and torch.equal(_bytes(head), _bytes(embedding))

    def _common_dtype(self, config: Mapping[str, object]) -> torch.dtype:
        first = self._dtypes[_EMBEDDING]
        for name, dtype in self._dtypes.items():
            if dtype not in _DTYPES or dtype != first:
                raise InvalidInputError(
                    f"{name} is stored as {dtype} and {_EMBEDDING} as {first}",
                    field="model.name",
                    remedy="`modnorm cast` writes it with all weights in one dtype",
                )
        declared = config.get("dtype") or config.get("torch_dtype")
        actual = _DTYPES[first]
        if declared is not None and str(declared).removeprefix("torch.") != dtype_name(actual):
            raise InvalidInputError(
                f"config.json states {declared}, the weights are {actual}",
                field="model.config.dtype",
                remedy="correct config.json, or write the model with `modnorm cast`: the dtype "
                "decides how perturbations are rounded",
            )
        return actual


def _require_plain(name: str, dtype: str) -> None:
    """Refuse a stored tensor whose numbers may not be the weights."""
    if dtype not in _CASTABLE:
        raise InvalidInputError(
            f"{name} is stored as {dtype}, so it may be quantised",
            field="model.name",
            remedy="use the original bfloat16, float16 or float32 checkpoint",
        )


def require_same_architecture(
    loaded: Checkpoint, dtype: torch.dtype, other: Checkpoint
) -> CheckpointWeights:
    """Return the weights of a checkpoint that differs from a loaded one in weights only."""
    stored = CheckpointWeights(other) if other.config == loaded.config else None
    if stored is None or stored.dtype != dtype:
        raise IncompatibleError(
            f"{other.name} has another configuration than {loaded.name}", field="model.name"
        )
    return stored


def rounded(tensor: str, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in another dtype, each value rounded to nearest."""
    cast = values.to(dtype)
    if not torch.equal(cast.isfinite(), values.isfinite()):
        largest = values[values.isfinite()].abs().max().item()
        raise InvalidInputError(
            f"{tensor} has {largest:g}, which {dtype_name(dtype)} cannot represent",
            field="dtype",
            remedy="choose bfloat16 or float32",
        )
    return cast


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in records, for example `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def weights_sha256(layout: Layout, read: Callable[[PhysicalTensor], torch.Tensor]) -> str:
    """Return SHA-256 over the raw bytes of all physical tensors, in canonical order."""
    digest = hashlib.sha256()
    for tensor in layout:
        digest.update(_bytes(read(tensor).detach().cpu()).numpy().data)
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as stored:
            yield stored
    except SafetensorError as error:
        raise InvalidInputError(
            f"{path} is not a complete safetensors file: {error}",
            field="model.name",
            remedy="download it again; in a clone of the repository, `git lfs pull` does",
        ) from error


def _mismatch(message: str) -> InvalidInputError:
    return InvalidInputError(message, field="model.name")
