"""Keep weights where they seem to be: vLLM's CPU build packs them away.

It hands every linear weight to a library that keeps a packed copy, and leaves the parameter
empty, or unused where head and embedding are tied. Noise on parameters would change nothing.
"""

import torch
from vllm.model_executor.layers import utils
from vllm.platforms import current_platform

from modnorm.errors import IncompatibleError

_DISPATCH = "dispatch_cpu_unquantized_gemm"


def keep_plain_weights() -> None:
    """Make linear layers of the CPU build multiply with their parameters; once is enough.

    Call it before the model is loaded. On a GPU there is nothing to do.

    Raises:
        IncompatibleError: this vLLM prepares linear weights in another way.
    """
    if not current_platform.is_cpu():
        return
    if not hasattr(utils, _DISPATCH) or not hasattr(utils, "cpu_unquantized_gemm"):
        raise IncompatibleError(
            f"vLLM's CPU build has no {_DISPATCH}",
            field="engine.name",
            remedy="use a version of vLLM that this package was tested with",
        )
    setattr(utils, _DISPATCH, _leave_weight)


def _leave_weight(
    layer: torch.nn.Module,
    remove_weight: bool,  # noqa: ARG001, FBT001 - the signature of vLLM's function
) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]  # as vLLM does
