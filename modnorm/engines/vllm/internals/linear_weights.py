"""Keeps the linear weights of vLLM's CPU build in their parameters.

The build passes every linear weight to a library that keeps a packed copy. The parameter is then
empty, or unused if head and embedding are tied, so noise on parameters would change nothing.
"""

import torch
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.platforms import current_platform

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage

_DISPATCH = "dispatch_cpu_unquantized_gemm"


def keep_plain_weights() -> None:
    """Make linear layers of the CPU build multiply with their parameters; no-op on a GPU.

    Call it before the model is loaded, once a process.

    Raises:
        IncompatibleError: this vLLM prepares linear weights in another way.
    """
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
