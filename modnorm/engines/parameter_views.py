"""The physical tensors of a transformers model, as views of its parameters."""

from collections.abc import Mapping

import torch

from modnorm.checkpoint.layout import Layout, PhysicalTensor
from modnorm.errors import IncompatibleError
from modnorm.noise import Block
from modnorm.perturbation.held_tensor import WeightView


def weight_views(
    layout: Layout, model: torch.nn.Module, dtype: torch.dtype
) -> Mapping[str, tuple[WeightView, ...]]:
    """Map each physical tensor to the parameters that hold its rows.

    transformers stores query, key, value, gate and up as separate parameters. They are row blocks
    of the fused tensors (paper, app. A.1). A tied head shares the embedding's storage, so the
    embedding covers it.

    Args:
        layout: All physical tensors.
        model: The model; its parameters are named as in the checkpoint.
        dtype: Dtype of every parameter, in which the model computes.

    Raises:
        IncompatibleError: a parameter is missing, has another shape or dtype, shares its storage
            with another physical tensor, or belongs to no physical tensor.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    views = {tensor.name: _views(tensor, parameters, dtype) for tensor in layout}
    _require_exact_cover(views, parameters)
    return views


def _views(
    tensor: PhysicalTensor, parameters: Mapping[str, torch.nn.Parameter], dtype: torch.dtype
) -> tuple[WeightView, ...]:
    views = []
    start = 0
    for part in tensor.parts:
        storage = parameters.get(part.name)
        shape = (part.rows, *tensor.shape[1:])
        if storage is None:
            raise IncompatibleError(f"the engine has no parameter {part.name}")
        if storage.shape != shape or storage.dtype != dtype:
            raise IncompatibleError(
                f"{part.name} is {storage.dtype} {tuple(storage.shape)} in the engine, "
                f"{dtype} {shape} in the layout"
            )
        views.append(WeightView(storage.data, Block((start, start + part.rows), None)))
        start += part.rows
    return tuple(views)


def _require_exact_cover(
    views: Mapping[str, tuple[WeightView, ...]], parameters: Mapping[str, torch.nn.Parameter]
) -> None:
    """Require each storage to be covered once; one storage under two names is one tensor."""
    covered = [view.storage.data_ptr() for parts in views.values() for view in parts]
    if len(set(covered)) != len(covered):
        raise IncompatibleError("two physical tensors share one parameter of the engine")
    surplus = sorted(name for name, value in parameters.items() if value.data_ptr() not in covered)
    if surplus:
        raise IncompatibleError(f"{surplus[0]} belongs to no physical tensor")
