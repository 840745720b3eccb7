"""Sensitivity calibration of one model (paper, app. A.2)."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from modnorm.calibration.maps import (
    FLOOR,
    LayerMaps,
    ModuleCall,
    Site,
    capture,
    layer_maps,
    operator_norm,
)
from modnorm.calibration.profile import (
    APPLICATION,
    METHOD,
    Profile,
    final_norm_seed,
    map_seed,
    require_every_layer,
    scheduled_layers,
)
from modnorm.checkpoint.checkpoint_files import positive
from modnorm.checkpoint.pretrained import (
    arithmetic_dtype,
    best_device,
    load_pretrained,
    most_threads,
)
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name
from modnorm.errors import InvalidInputError
from modnorm.files import json_digest
from modnorm.geometry.scales import linear_gain
from modnorm.spec import CalibrationSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class FrozenModel:
    """A decoder in evaluation mode whose parameters need no gradients."""

    decoder: nn.Module
    """Embedding, layers and final norm."""
    layers: tuple[nn.Module, ...]
    final_norm: nn.Module
    head: torch.Tensor
    """Weight of the output head, shape (vocabulary, hidden); the embedding if tied."""

    @property
    def device(self) -> torch.device:
        return self.head.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights and activations."""
        return self.head.dtype


def freeze(model: "PreTrainedModel") -> FrozenModel:
    """Return the parts of a causal language model, which must use eager attention."""
    model.eval().requires_grad_(requires_grad=False)
    decoder = cast("nn.Module", model.get_decoder())
    return FrozenModel(
        decoder=decoder,
        layers=tuple(cast("nn.ModuleList", decoder.get_submodule("layers"))),
        final_norm=decoder.get_submodule("norm"),
        head=cast("nn.Linear", model.get_output_embeddings()).weight,
    )


def calibration_precision(checkpoint: Checkpoint, device: torch.device) -> str:
    """Return the name of the dtype that a calibration computes in, as in profiles."""
    return dtype_name(arithmetic_dtype(CheckpointWeights(checkpoint).dtype, device))


def load_frozen(checkpoint: Checkpoint, device: torch.device) -> FrozenModel:
    """Load a checkpoint in its arithmetic dtype on the device, with eager attention."""
    dtype = arithmetic_dtype(CheckpointWeights(checkpoint).dtype, device)
    model = load_pretrained(checkpoint, dtype=dtype, attention="eager")
    cast("nn.Module", model).to(device)
    # An engine of this process may use fewer, and the rounding depends on it.
    torch.set_num_threads(most_threads())
    return freeze(model)


FINAL_NORM = "final_norm"


Place = tuple[int | None, str]
"""Layer and name of a functional map; the final norm has no layer."""


def measure(
    model: FrozenModel,
    maps: LayerMaps,
    prompt: Sequence[int],
    example: int,
    settings: CalibrationSpec,
) -> dict[Place, float]:
    """Return the operator norms on one prompt: layers in schedule order, then the final norm."""
    layers = scheduled_layers(example, settings.layers_per_example, len(model.layers))
    calls, final = _capture(model, maps, prompt, layers)
    norms: dict[Place, torch.Tensor] = {}

    def estimate(place: Place, site: Site, seed: int) -> None:
        norms[place] = operator_norm(
            site.function, site.at, seed=seed, iterations=settings.iterations
        )

    for layer in layers:
        sites = maps.sites(model.layers[layer], calls[layer])
        for kappa, (metric, site) in enumerate(zip(maps.metrics, sites, strict=True)):
            estimate((layer, metric), site, map_seed(settings.seed, example, layer, kappa))
    final_site = Site(model.final_norm, final.hidden)
    estimate((None, FINAL_NORM), final_site, final_norm_seed(settings.seed, example))
    values = dict(zip(norms, torch.stack([*norms.values()]).tolist(), strict=True))
    for (at, metric), norm in values.items():
        if not math.isfinite(norm):
            name = metric if at is None else f"{metric} of layer {at}"
            raise InvalidInputError(
                f"the operator norm of {name} is {norm}",
                field="model.name",
                remedy="use a checkpoint without NaN and infinity",
            )
    return values


def _capture(
    model: FrozenModel, maps: LayerMaps, prompt: Sequence[int], layers: Sequence[int]
) -> tuple[dict[int, dict[str, ModuleCall]], ModuleCall]:
    """Return the captured calls of each layer, by path, and the call of the final norm."""
    places = [(layer, path) for layer in layers for path in maps.watched]
    modules = [model.layers[layer].get_submodule(path) for layer, path in places]
    ids = torch.tensor([list(prompt)], device=model.device)
    *calls, final = capture(model.decoder, ids, [*modules, model.final_norm])
    by_layer: dict[int, dict[str, ModuleCall]] = {layer: {} for layer in layers}
    for (layer, path), call in zip(places, calls, strict=True):
        by_layer[layer][path] = call
    return by_layer, final


VERSION = "3"
"""Increased when equal inputs, precision included, begin to give another profile."""


def calibrate(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    settings: CalibrationSpec,
    *,
    task: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Return a profile with the sensitivities of all layers, measured prompt by prompt.

    Equal inputs on the same device and number of threads give equal bytes: a profile records no
    times.
    """
    measured = calibration_prompts(prompts, settings)
    maps = layer_maps(checkpoint.config.get("model_type"), settings.maps)
    check_fit(measured, 0, checkpoint)
    layers = positive(checkpoint.config, "num_hidden_layers")
    require_every_layer(len(measured), settings.layers_per_example, layers)
    model = load_frozen(checkpoint, best_device())
    estimates: dict[Place, list[float]] = defaultdict(list)
    for example, prompt in enumerate(measured):
        for place, norm in measure(model, maps, prompt, example, settings).items():
            estimates[place].append(norm)
        if on_progress is not None:
            on_progress(example + 1, len(measured))
    return Profile.from_content(
        {
            "schema_version": 2,
            "method": METHOD,
            "model_name": checkpoint.name,
            "model_revision": checkpoint.revision,
            "model_digest": checkpoint.digest,
            "dataset": task,
            "prompts_sha256": json_digest(measured),
            "num_layers": len(model.layers),
            "calibration": {
                "version": VERSION,
                **({} if settings.maps == "default" else {"maps": settings.maps}),
                "num_examples": len(measured),
                "layers_per_example": settings.layers_per_example,
                "max_length": settings.max_length,
                "precision": dtype_name(model.dtype),
                "device": model.device.type,
                "estimator": "power",
                "jvp_power_iterations": settings.iterations,
                "estimator_seed": settings.seed,
                "aggregate": "exp(quantile(log sensitivity))",
                "aggregate_quantile": settings.quantile,
            },
            "application": dict(APPLICATION),
            "global": {
                FINAL_NORM: aggregate(estimates[None, FINAL_NORM], settings.quantile),
                "output_head": {
                    # No scale depends on it, and the head is large.
                    "value": linear_gain(model.head.float()),
                    "source": "power_iteration_rms_to_rms",
                },
            },
            "layers": {
                str(layer): {
                    metric: aggregate(estimates[layer, metric], settings.quantile)
                    for metric in maps.metrics
                }
                for layer in range(len(model.layers))
            },
        }
    )


def calibration_prompts(
    prompts: Sequence[Sequence[int]], settings: CalibrationSpec
) -> list[list[int]]:
    """Return the measured part of the prompts: the first prompts and their first tokens."""
    return [list(prompt[: settings.max_length]) for prompt in prompts[: settings.examples]]


def aggregate(estimates: Sequence[float], quantile: float) -> dict[str, object]:
    """Return value and summary of some estimates (paper, eq. app_aggregated_sensitivity).

    As in the published profiles, logs are float32 and the median of an even count is the lower
    middle one. So a value can lie a few 1e-7 (relative) outside of min and max.
    """
    floored = [max(estimate, FLOOR) for estimate in estimates]
    logs = torch.tensor([math.log(value) for value in floored], dtype=torch.float32)
    values = torch.tensor(floored, dtype=torch.float32)
    return {
        "value": math.exp(torch.quantile(logs, quantile).item()),
        "summary": {
            "count": len(floored),
            "min": values.min().item(),
            "median": values.median().item(),
            "max": values.max().item(),
        },
    }


def calibration_key(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], settings: CalibrationSpec, task: str
) -> str:
    """Return the SHA-256 of all inputs of the profile that is calibrated on this machine."""
    return json_digest(
        {
            "version": VERSION,
            "precision": calibration_precision(checkpoint, best_device()),
            "model": checkpoint.digest,
            "settings": settings.model_dump(mode="json"),
            "prompts": prompts,
            "task": task,
        }
    )
