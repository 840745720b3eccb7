"""Estimation of operator norms of a model's functional maps on one prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from modnorm.calibration.frozen_model import FrozenModel
from modnorm.calibration.layer_schedule import final_norm_seed, map_seed, scheduled_layers
from modnorm.calibration.maps import LayerMaps, ModuleCall, Site, capture
from modnorm.calibration.operator_norm import operator_norm
from modnorm.errors import InvalidInputError
from modnorm.spec import CalibrationSpec

FINAL_NORM = "final_norm"


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimated operator norm."""

    layer: int | None
    """None for the final norm."""
    metric: str
    norm: float


def measure(
    model: FrozenModel,
    maps: LayerMaps,
    prompt: Sequence[int],
    example: int,
    settings: CalibrationSpec,
) -> list[Estimate]:
    """Return the estimates of one prompt: its layers in schedule order, then the final norm.

    All are computed before the host waits for the device.

    Args:
        model: The model.
        maps: Functional maps of its family.
        prompt: Token ids, at least one.
        example: Index of the prompt, which decides layers and seeds.
        settings: Estimator settings.

    Raises:
        InvalidInputError: a norm is not finite.
    """
    layers = scheduled_layers(example, settings.layers_per_example, len(model.layers))
    calls, final = _capture(model, maps, prompt, layers)
    names: list[tuple[int | None, str]] = []
    norms: list[torch.Tensor] = []
    for layer in layers:
        sites = maps.sites(model.layers[layer], calls[layer])
        for kappa, (metric, site) in enumerate(zip(maps.metrics, sites, strict=True)):
            seed = map_seed(settings.seed, example, layer, kappa)
            names.append((layer, metric))
            norms.append(_norm(site, seed, settings))
    seed = final_norm_seed(settings.seed, example)
    names.append((None, FINAL_NORM))
    norms.append(_norm(Site(model.final_norm, final.hidden), seed, settings))
    values = torch.stack(norms).tolist()
    return [_checked(*name, norm) for name, norm in zip(names, values, strict=True)]


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


def _norm(site: Site, seed: int, settings: CalibrationSpec) -> torch.Tensor:
    return operator_norm(site.function, site.at, seed=seed, iterations=settings.iterations)


def _checked(layer: int | None, metric: str, norm: float) -> Estimate:
    """Return an estimate that is finite."""
    if not math.isfinite(norm):
        map_name = metric if layer is None else f"{metric} of layer {layer}"
        raise InvalidInputError(
            f"the operator norm of {map_name} is {norm}",
            field="model.name",
            remedy="check that the weights are finite and were trained in their dtype",
        )
    return Estimate(layer, metric, norm)
