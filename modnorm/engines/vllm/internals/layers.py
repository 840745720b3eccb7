"""The physical tensors of vLLM's model, as views of its parameters.

vLLM's modules have the names of the physical tensors. A module's class determines the part that a
rank holds. Unknown classes, including subclasses, are refused: their layout may differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm
from vllm.model_executor.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.platforms import current_platform

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.errors import IncompatibleError
from modnorm.noise import Block
from modnorm.perturbation.held_tensor import WeightView

_DISPATCH = "dispatch_cpu_unquantized_gemm"


def keep_plain_weights() -> None:
    """Make linear layers of the CPU build multiply with their parameters; no-op on a GPU."""
    if current_platform.is_cpu():
        LINEAR_WEIGHTS.require()
        setattr(utils, _DISPATCH, _leave_weight)


def _leave_weight(
    layer: torch.nn.Module,
    remove_weight: bool,  # noqa: ARG001, FBT001 - the signature of vLLM's function
) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]  # as in vLLM


def _leaves_weights(_: object) -> bool:
    """Small layers keep their weights after loading and multiply with them."""
    for method in (UnquantizedLinearMethod, UnquantizedEmbeddingMethod):
        layer = torch.nn.Linear(32, 32, bias=False)
        method.process_weights_after_loading(object(), layer)
        if not layer.weight.numel() or layer.cpu_linear is not torch.nn.functional.linear:
            return False
    return True


LINEAR_WEIGHTS = RegisterEntry(
    name="linear_weights",
    purpose="Makes linear layers of the CPU build multiply with the candidates' parameters.",
    stage=Stage.PROCESS,
    vllm_names=(
        f"vllm.model_executor.layers.utils:{_DISPATCH}",
        "vllm.model_executor.layers.utils:cpu_unquantized_gemm",
    ),
    versions="0.26 to 0.33, CPU builds",
    removable_when="the CPU build can disable packing",
    self_test=_leaves_weights,
    applies=lambda _: current_platform.is_cpu(),
)


Place = tuple[int, Block]
"""First row of the parameter, and the block of the physical tensor that begins there."""
_REMEDY = "use the transformers engine for this model"


def shard_views(
    layout: Layout, model: torch.nn.Module, dtype: torch.dtype
) -> Mapping[str, tuple[WeightView, ...]]:
    """Map each physical tensor to this rank's views of it."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    modules = dict(model.named_modules(remove_duplicate=False))
    views = {
        tensor.name: _views(tensor, modules, _plain(tensor, parameters, dtype))
        for tensor in layout
    }
    _require_exact_cover(layout, parameters)
    return views


def _plain(
    tensor: PhysicalTensor, parameters: Mapping[str, torch.nn.Parameter], dtype: torch.dtype
) -> torch.Tensor:
    parameter = parameters.get(tensor.name)
    if parameter is None:
        raise _unknown(f"vLLM has no parameter {tensor.name}")
    if not parameter.numel():
        raise _unknown(f"vLLM keeps {tensor.name} elsewhere: its parameter is empty")
    if parameter.dtype != dtype:
        raise _unknown(f"{tensor.name} is {parameter.dtype} in vLLM, {dtype} in the checkpoint")
    if not parameter.is_contiguous():
        raise _unknown(f"vLLM has changed the memory order of {tensor.name}")
    return parameter.data


def _views(
    tensor: PhysicalTensor, modules: Mapping[str, torch.nn.Module], storage: torch.Tensor
) -> tuple[WeightView, ...]:
    path, _, kind = tensor.name.rpartition(".")
    module = modules[path]
    places = _PLACES.get(type(module))
    if places is None:
        raise _unknown(f"{path} is a {type(module).__name__}")
    method = getattr(module, "quant_method", None)
    if method is not None and type(method) not in _PLAIN_METHODS:
        raise _unknown(f"{path} is stored by {type(method).__name__}")
    if kind not in {"weight", "bias"}:
        raise _unknown(f"{tensor.name} is neither a weight nor a bias")
    try:
        joined = tuple(_joined(places(module, tensor)))
    except AttributeError as error:
        raise _unknown(f"{path} lacks an attribute of its class: {error}") from error
    return tuple(_view(tensor, storage, place) for place in joined)


def _view(tensor: PhysicalTensor, storage: torch.Tensor, place: Place) -> WeightView:
    start, block = place
    shape = block.shape_in(tensor.shape)
    held = storage[start : start + shape[0]]
    if held.shape != shape:
        raise _unknown(f"{tensor.name} is {tuple(storage.shape)} in vLLM, which lacks {block}")
    return WeightView(held, block)


def _whole(_: torch.nn.Module, tensor: PhysicalTensor) -> Iterator[Place]:
    yield 0, Block.whole(tensor.shape)


def _vocabulary(module: torch.nn.Module, tensor: PhysicalTensor) -> Iterator[Place]:
    """Rows of tokens; padding rows come after them and belong to no tensor."""
    shard = module.shard_indices
    rows = _number(module, "org_vocab_size")
    if _number(module, "num_added_embeddings") or rows != tensor.shape[0]:
        raise _unknown(f"{tensor.name} has tokens that the checkpoint lacks")
    ends = _number(shard, "org_vocab_start_index"), _number(shard, "org_vocab_end_index")
    yield 0, Block(ends)


def _query_key_value(module: torch.nn.Module, tensor: PhysicalTensor) -> Iterator[Place]:
    """Heads of each rank; if ranks outnumber key-value heads, they share them."""
    head, rank = _number(module, "head_size"), _number(module, "tp_rank")
    if getattr(module, "v_head_size", head) != head:
        raise _unknown(f"{tensor.name} has values of another size than keys")
    shared = rank // _number(module, "num_kv_head_replicas")
    query = head * _number(module, "num_heads")
    other = head * _number(module, "num_kv_heads")
    return _stacked(tensor, [(query, rank), (other, shared), (other, shared)])


def _merged(module: torch.nn.Module, tensor: PhysicalTensor) -> Iterator[Place]:
    ranks, rank = _number(module, "tp_size"), _number(module, "tp_rank")
    return _stacked(tensor, [(part.rows // ranks, rank) for part in tensor.parts])


def _stacked(tensor: PhysicalTensor, shares: Sequence[tuple[int, int]]) -> Iterator[Place]:
    """Yield the place of each part's share."""
    if len(tensor.parts) != len(shares):
        raise _unknown(f"{tensor.name} is fused in the checkpoint, so its parts are unknown")
    held, first = 0, 0
    for part, (rows, index) in zip(tensor.parts, shares, strict=True):
        begin = first + index * rows
        if begin + rows > first + part.rows:
            raise _unknown(f"{part.name} has {part.rows} rows, too few for shares of {rows}")
        yield held, Block((begin, begin + rows))
        held += rows
        first += part.rows


def _by_columns(module: torch.nn.Module, tensor: PhysicalTensor) -> Iterator[Place]:
    """Columns of the weight. Every rank holds the whole bias, and one rank adds it."""
    if len(tensor.shape) < 2:
        return _whole(module, tensor)
    columns = _number(module, "input_size_per_partition")
    begin = _number(module, "tp_rank") * columns
    if columns == tensor.shape[1]:
        return _whole(module, tensor)
    return iter([(0, Block((0, tensor.shape[0]), (begin, begin + columns)))])


_Places = Callable[[torch.nn.Module, PhysicalTensor], Iterator[Place]]
_PLACES: Mapping[type, _Places] = MappingProxyType(
    {
        VocabParallelEmbedding: _vocabulary,
        ParallelLMHead: _vocabulary,
        QKVParallelLinear: _query_key_value,
        MergedColumnParallelLinear: _merged,
        RowParallelLinear: _by_columns,
        RMSNorm: _whole,
        GemmaRMSNorm: _whole,
    }
)
_PLAIN_METHODS = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)


def _joined(places: Iterator[Place]) -> Iterator[Place]:
    """Join adjacent blocks, so that a whole tensor is one view."""
    start, block = next(places)
    for begin, following in places:
        if block.rows[1] == following.rows[0]:
            block = Block((block.rows[0], following.rows[1]), block.columns)
        else:
            yield start, block
            start, block = begin, following
    yield start, block


def _require_exact_cover(layout: Layout, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Require each storage to be covered once; a tied head is the embedding's storage."""
    covered = [parameters[tensor.name].data_ptr() for tensor in layout]
    if len(set(covered)) != len(covered):
        raise _unknown("two physical tensors share one parameter of vLLM")
    surplus = sorted(name for name, value in parameters.items() if value.data_ptr() not in covered)
    if surplus:
        raise _unknown(f"vLLM's {surplus[0]} belongs to no physical tensor")


def _number(owner: object, name: str) -> int:
    return int(getattr(owner, name))


def _unknown(message: str) -> IncompatibleError:
    return IncompatibleError(message, field="engine.name", remedy=_REMEDY)


def _has_known_layers(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker, extended
    """The model has layers of known classes; afterwards each element is compared."""
    return any(type(module) in _PLACES for module in worker.get_model().modules())


LAYERS = RegisterEntry(
    name="layers",
    purpose="Derives the part of a tensor that a rank holds from the layer's class.",
    stage=Stage.WORKER,
    vllm_names=tuple(f"{kind.__module__}:{kind.__name__}" for kind in (*_PLACES, *_PLAIN_METHODS)),
    remedy=_REMEDY,
    removable_when="vLLM maps parameters to checkpoint tensors in its interface",
    self_test=_has_known_layers,
)
