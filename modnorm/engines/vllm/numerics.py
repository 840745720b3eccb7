"""Which kernels vLLM computes with: its fast ones, or its batch-invariant ones.

vLLM reads one environment variable for that, some of its modules when they are imported, and its
batch-invariant kernels replace operators of torch for good. So a process has one mode.
"""

import os
import sys

from modnorm.engines.settings import Numerics
from modnorm.errors import IncompatibleError, PreconditionError

VARIABLE = "VLLM_BATCH_INVARIANT"
LEAST_CAPABILITY = 80
"""Of an NVIDIA GPU, below which vLLM has no batch-invariant kernels."""


def choose_numerics(numerics: Numerics) -> None:
    """Have the engines of this process compute so; used before vLLM is imported.

    Raises:
        PreconditionError: vLLM is imported, and computes otherwise.
    """
    if "vllm.envs" not in sys.modules:
        value = str(int(numerics is Numerics.BATCH_INVARIANT))
        os.environ[VARIABLE] = value  # noqa: TID251 - vLLM is told in no other way
    elif (chosen := chosen_numerics()) is not numerics:
        raise PreconditionError(
            f"this process runs vLLM with {chosen} numerics, and cannot change to {numerics}",
            field="engine.numerics",
            remedy="start the process anew",
        )


def chosen_numerics() -> Numerics:
    """Return how vLLM computes in this process; used once it is imported."""
    from vllm import envs  # noqa: PLC0415 - need not be installed, and reads the variable

    is_invariant = bool(getattr(envs, VARIABLE, False))
    return Numerics.BATCH_INVARIANT if is_invariant else Numerics.FAST


def require_offered(numerics: Numerics) -> None:
    """Make sure that this vLLM computes so on this device.

    Raises:
        IncompatibleError: it does not.
    """
    if numerics is Numerics.FAST:
        return
    from vllm import envs  # noqa: PLC0415 - need not be installed
    from vllm.platforms import current_platform  # noqa: PLC0415 - need not be installed

    if VARIABLE not in envs.environment_variables:
        raise _refused("this version of vLLM has no batch-invariant mode")
    if not current_platform.is_cuda_alike():
        raise _refused("vLLM has a batch-invariant mode on GPUs only")
    if current_platform.is_cuda() and not current_platform.has_device_capability(LEAST_CAPABILITY):
        name = current_platform.get_device_name()
        raise _refused(f"vLLM has no batch-invariant kernels for {name}")


def _refused(reason: str) -> IncompatibleError:
    return IncompatibleError(
        reason,
        field="engine.numerics",
        remedy="use numerics: fast, or evaluators that offer it (docs/engines.md)",
    )
