"""The choice between vLLM's fast and its batch-invariant kernels.

vLLM reads an environment variable for it, partly at import. Its batch-invariant kernels replace
operators of torch permanently. So a process has one mode.
"""

import os
import sys

from modnorm.engines.settings import Numerics
from modnorm.errors import IncompatibleError, PreconditionError

VARIABLE = "VLLM_BATCH_INVARIANT"
LEAST_CAPABILITY = 80
"""The lowest capability of an NVIDIA GPU for which vLLM has batch-invariant kernels."""


def choose_numerics(numerics: Numerics) -> None:
    """Set the mode of this process; call it before vLLM is imported."""
    if "vllm.envs" not in sys.modules:
        value = str(int(numerics is Numerics.BATCH_INVARIANT))
        os.environ[VARIABLE] = value  # noqa: TID251 - vLLM has no other setting
    elif (chosen := chosen_numerics()) is not numerics:
        raise PreconditionError(
            f"this process runs vLLM with {chosen} numerics and cannot change to {numerics}",
            field="engine.numerics",
            remedy="restart the process",
        )


def chosen_numerics() -> Numerics:
    """Return the mode of this process; call it after vLLM is imported."""
    return Numerics.BATCH_INVARIANT if is_invariant() else Numerics.FAST


def is_invariant(_: object = None) -> bool:
    """The variable of batch-invariant kernels is set."""
    from vllm import envs  # noqa: PLC0415 - an optional package that reads the variable

    return bool(getattr(envs, VARIABLE, False))


def require_offered(numerics: Numerics) -> None:
    """Refuse a mode that this vLLM lacks on this device."""
    if numerics is Numerics.FAST:
        return
    from vllm import envs  # noqa: PLC0415 - an optional package
    from vllm.platforms import current_platform  # noqa: PLC0415 - an optional package

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
