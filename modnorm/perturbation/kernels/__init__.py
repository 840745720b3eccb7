"""Triton kernels that write candidates; the plain version defines their results."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

from modnorm.perturbation.held_tensor import HeldTensor

if TYPE_CHECKING:
    from modnorm.perturbation.kernels.fused import FusedWeights

_LOG = logging.getLogger(__name__)


def fused_weights(held: Mapping[str, HeldTensor]) -> "FusedWeights | None":
    """Return the kernels for these tensors, or None if the plain version must write them."""
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
    """Return the fault of the kernels, if any, and the usable kernels, if any."""
    from triton.errors import TritonError  # noqa: PLC0415 - only with Triton

    from modnorm.perturbation.kernels import fused  # noqa: PLC0415 - only with Triton

    if not fused.addressable(held):
        return None, None
    device = next(iter(held.values())).device
    try:
        fault = fused.deviation({tensor.dtype for tensor in held.values()}, device)
    except TritonError as error:
        return str(error), None
    return fault, None if fault else fused.FusedWeights(held)
