"""Export of candidates and trained states as checkpoints, and of low-rank candidates as adapters.

An adapter is a LoRA adapter in the format of PEFT. Part `w` of a matrix has the perturbation
`c * B A`, with the coefficient `c` of its matrix and the factors of
`modnorm.perturbation.low_rank`. The adapter holds, in float32,

    lora_A = A        lora_B = fl32( c * B )

and `lora_alpha` is the rank, so an engine adds `lora_B lora_A`. A is exact in float32. A
candidate's weights are rounded to their dtype after the addition; an adapter's sum is not.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from modnorm.checkpoint.checkpoint_files import ADAPTER, CARD
from modnorm.checkpoint.families import Part, family_of, physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.checkpoint.writing import (
    atomic_directory,
    require_new,
    save_tensors,
    write_checkpoint,
)
from modnorm.errors import CandidateError, IncompatibleError, InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.low_rank import draw_factors

CANDIDATE, LINEAGE = "candidate.json", "lineage.json"


def export_candidate(
    checkpoint: Checkpoint,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    directory: Path,
    *,
    card: str | None = None,
) -> str:
    """Write a candidate's weights, its base's other files, its descriptor; return its SHA-256."""
    notes = {CANDIDATE: _to_json(asdict(descriptor)), **_card(card)}
    return _export(checkpoint, directory, notes, lambda held: held.apply(descriptor, scale_map))


def export_state(
    checkpoint: Checkpoint, lineage: Lineage, directory: Path, *, card: str | None = None
) -> str:
    """Write a state's weights, its base's other files and its lineage; return its SHA-256."""
    notes = {LINEAGE: lineage.to_json(), **_card(card)}
    return _export(checkpoint, directory, notes, lambda held: held.rebase(lineage))


def _export(
    checkpoint: Checkpoint,
    directory: Path,
    notes: Mapping[str, str],
    change: Callable[[CandidateWeights], object],
) -> str:
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors, weights = _load_tensors(stored, checkpoint.digest)
    change(weights)
    write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    return weights.sha256()


def candidate_digests(
    checkpoint: Checkpoint, descriptors: Sequence[Descriptor], scale_map: ScaleMap
) -> tuple[str, ...]:
    """Return the digest of each candidate's weights, as `export_candidate` returns it."""
    _, weights = _load_tensors(CheckpointWeights(checkpoint), checkpoint.digest)
    digests = []
    for descriptor in descriptors:
        weights.apply(descriptor, scale_map)
        digests.append(weights.sha256())
        weights.restore()
    return tuple(digests)


def _card(text: str | None) -> dict[str, str]:
    return {} if text is None else {CARD: text}


def _load_tensors(
    stored: CheckpointWeights, model_digest: str
) -> tuple[dict[str, torch.Tensor], CandidateWeights]:
    """Return the physical tensors of a checkpoint by name, and the weights that perturb them."""
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    views = {
        name: [WeightView(values, Block.whole(tuple(values.shape)))]
        for name, values in tensors.items()
    }
    return tensors, CandidateWeights(stored.layout, views, model_digest=model_digest)


ADAPTER_WEIGHTS = "adapter_model.safetensors"
_LINEAR = frozenset({"attention", "mlp"})
"""Groups of the matrices that engines take from adapters; vLLM takes no embeddings of Qwen2."""
_PREFIX = "base_model.model."
"""PEFT's name of the wrapped model."""
_CPU = torch.device("cpu")


def write_adapter(
    checkpoint: Checkpoint,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    directory: Path,
    *,
    card: str | None = None,
) -> None:
    """Write a candidate's adapter: configuration, factors and descriptor."""
    require_new(directory)
    tensors = adapter_tensors(checkpoint, descriptor, scale_map)
    texts = {
        ADAPTER: _to_json(_configuration(checkpoint, scale_map)),
        CANDIDATE: _to_json(asdict(descriptor)),
        **_card(card),
    }
    with atomic_directory(directory) as draft:
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8")
        save_tensors(tensors, draft / ADAPTER_WEIGHTS, like=draft / ADAPTER)


def adapter_tensors(
    checkpoint: Checkpoint, descriptor: Descriptor, scale_map: ScaleMap
) -> dict[str, torch.Tensor]:
    """Return the tensors of a candidate's adapter by PEFT's names, float32 on the CPU.

    `lora_A` has shape (rank, columns) and `lora_B` (rows, rank).
    """
    rank = require_adapters(scale_map)
    coefficients = _coefficients(checkpoint, descriptor, scale_map)
    tensors = {}
    for tensor in physical_layout(checkpoint.config):
        if tensor.name not in coefficients:
            continue
        coefficient = coefficients[tensor.name]
        for part in tensor.parts:
            left, right = draw_factors(
                part, tensor.shape[1], rank, seed=descriptor.seed, device=_CPU
            )
            name = _PREFIX + _module(checkpoint, part)
            tensors[f"{name}.lora_A.weight"] = right.to(torch.float32)
            tensors[f"{name}.lora_B.weight"] = left.to(torch.float32) * coefficient
    return tensors


def require_adapters(scale_map: ScaleMap) -> int:
    """Return the rank of candidates that can be adapters."""
    if scale_map.rank is None:
        raise InvalidInputError(
            "candidates of full rank cannot be adapters, which hold two thin factors of each "
            "matrix",
            field="adapters",
            remedy="write checkpoints: `modnorm export --manifest`, then `modnorm rebuild`; or "
            "search with `method: {rank: 16, target_modules: all-linear}`",
        )
    for scale in scale_map.active:
        if scale.group not in _LINEAR:
            raise InvalidInputError(
                f"the candidates perturb {scale.name}, which engines take from no adapter",
                field="adapters",
                remedy="search with `target_modules: all-linear` in `method`",
            )
    return scale_map.rank


def _coefficients(
    checkpoint: Checkpoint, descriptor: Descriptor, scale_map: ScaleMap
) -> Mapping[str, float]:
    """Return the coefficient of each perturbed tensor by name."""
    found = descriptor.scale_map, scale_map.model_digest
    if found != (scale_map.digest, checkpoint.digest):
        raise IncompatibleError("the candidate belongs to another model or scale map")
    if len(descriptor.coefficients or ()) != len(scale_map.active):
        raise CandidateError("an adapter needs a coefficient for each perturbed tensor")
    names = (scale.name for scale in scale_map.active)
    return dict(zip(names, descriptor.coefficients or (), strict=True))


def _configuration(checkpoint: Checkpoint, scale_map: ScaleMap) -> dict[str, object]:
    """Return the content of `adapter_config.json`."""
    family, active = family_of(checkpoint.config), {scale.name for scale in scale_map.active}
    perturbed = (each for each in physical_layout(checkpoint.config) if each.name in active)
    modules = {_module(checkpoint, part) for tensor in perturbed for part in tensor.parts}
    excluded = "|".join(f"{re.escape(prefix)}.*" for prefix in family.ignored)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": checkpoint.location,
        "revision": checkpoint.revision,
        "r": scale_map.rank,
        "lora_alpha": scale_map.rank,
        "lora_dropout": 0.0,
        "target_modules": sorted({module.rpartition(".")[2] for module in modules}),
        "exclude_modules": excluded or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "inference_mode": True,
    }


def _module(checkpoint: Checkpoint, part: Part) -> str:
    """Return the name of a part's module in transformers' class of the whole model."""
    module = part.name.removesuffix(".weight").removeprefix("model.")
    return family_of(checkpoint.config).decoder_prefix + module


def _to_json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
