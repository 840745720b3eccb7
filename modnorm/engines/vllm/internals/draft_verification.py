"""Launches a kernel of vLLM's verification of drafts with one warp, because several race.

Each warp of a program reads the number of a request's sampled tokens. The first warp increments it
in memory without waiting for the others. A later warp uses the incremented number: it reads beyond
the request, takes the value there as an index, and may leave the program. This gives wrong tokens
and wild addresses. Warps are late if other processes use the same multiprocessor.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage, resolve

_MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"
_KERNEL = "_insert_resampled_kernel"


class OneWarp:
    """A Triton kernel whose programs have one warp."""

    def __init__(self, kernel: Any) -> None:  # noqa: ANN401 - Triton is untyped
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """Return the launcher of a grid of programs."""
        return partial(self._kernel[grid], num_warps=1)


def verify_in_one_warp() -> None:
    """Let vLLM launch the kernel with one warp, in this process."""
    try:
        kernel = resolve(f"{_MODULE}:{_KERNEL}")
    except (ImportError, AttributeError):
        return
    if not isinstance(kernel, OneWarp):
        setattr(sys.modules[_MODULE], _KERNEL, OneWarp(kernel))


def _has_speculator(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker
    return getattr(worker.model_runner, "speculator", None) is not None


def _has_one_warp(_: object) -> bool:
    """The kernel is launched with one warp."""
    return isinstance(resolve(f"{_MODULE}:{_KERNEL}"), OneWarp)


DRAFT_VERIFICATION = RegisterEntry(
    name="draft_verification",
    purpose="Launches a kernel with one warp, because several race for the number of tokens.",
    stage=Stage.WORKER,
    vllm_names=(f"{_MODULE}:{_KERNEL}",),
    versions="0.26 on a GPU",
    otherwise="use drafts: none",
    removable_when="vLLM launches the kernel with one warp",
    self_test=_has_one_warp,
    applies=_has_speculator,
)
