"""Triton kernels that write candidates; the plain version says what they must do.

Nothing here imports Triton before `fused_weights` is asked for it.
"""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

from modnorm.perturbation.views import HeldTensor

if TYPE_CHECKING:
    from modnorm.perturbation.kernels.fused import FusedWeights

_LOG = logging.getLogger(__name__)


def fused_weights(held: Mapping[str, HeldTensor]) -> "FusedWeights | None":
    """Return the kernels for these tensors, or None where the plain version must do.

    That is without CUDA or Triton, for layouts beyond the kernels and weights kept in a wider
    dtype, where Triton cannot build them (its launcher needs a C compiler), and where its build
    deviates from the plain version on small blocks. The last two are logged.
    """
    on_gpu = bool(held) and all(
        tensor.device.type == "cuda" and not tensor.is_widened for tensor in held.values()
    )
    if not on_gpu or find_spec("triton") is None:
        return None
    try:
        fault, fused = _checked(held)
    except (ImportError, OSError, RuntimeError, CalledProcessError) as error:
        fault, fused = str(error), None
    if fault:
        _LOG.warning("candidates are written without kernels: %s", fault)
    return fused


def _checked(held: Mapping[str, HeldTensor]) -> "tuple[str | None, FusedWeights | None]":
    """Return what is wrong with the kernels, and the kernels if nothing is and they fit."""
    from triton.errors import TritonError  # noqa: PLC0415 - only with Triton

    from modnorm.perturbation.kernels import fused, self_check  # noqa: PLC0415 - the same

    if not fused.addressable(held):
        return None, None
    device = next(iter(held.values())).device
    try:
        fault = self_check.deviation({tensor.dtype for tensor in held.values()}, device)
    except TritonError as error:
        return str(error), None
    return fault, None if fault else fused.FusedWeights(held)
