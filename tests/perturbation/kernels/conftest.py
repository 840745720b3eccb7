"""The kernels on a GPU if there is one, otherwise in Triton's interpreter.

The interpreter is chosen in `tests/conftest.py`, before anything imports Triton.
"""

import platform
import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

ON_GPU = torch.cuda.is_available()
EXPECTED = (sys.platform, platform.machine()) == ("linux", "x86_64")
"""Platforms on which the development requirements install Triton; it must be there."""

if EXPECTED or find_spec("triton"):
    from triton.runtime import interpreter

    from modnorm.perturbation.kernels.fused import FusedWeights
    from modnorm.perturbation.kernels.launch import LaunchSizes

    _patched: set[object] = set()

    def _call(self, *args, **kwargs):
        """Call a device function; the interpreter patches its language anew at each call."""
        if self.fn not in _patched:
            interpreter._patch_lang(self.fn)
            _patched.add(self.fn)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = _call


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if ON_GPU else "cpu")


@pytest.fixture(scope="session")
def small() -> "LaunchSizes":
    """Return launch sizes so small that each tensor has several programs, one not full.

    Each stages the quantile table: a single warp would hold a thousand entries a thread, which
    takes the compiler minutes.
    """
    return LaunchSizes(
        write_blocks=64,
        write_warps=4,
        product_blocks=64,
        product_warps=1,
        copy_blocks=64,
        copy_warps=1,
    )


@pytest.fixture
def fuse(small) -> Callable[..., object]:
    """Return a function that makes weights use kernels on any device."""

    def give(weights, sizes=small):
        weights._fused = FusedWeights(weights._held, sizes)
        return weights

    return give


@pytest.fixture
def pair(fuse, device):
    """Return a function that loads a model twice: with kernels, and plainly on the CPU."""

    def hold(model, blocks=None, dtype=torch.bfloat16):
        base = {name: tensor.to(device) for name, tensor in model.base(dtype).items()}
        views, plain_views = model.views(blocks, base), model.views(blocks, model.base(dtype))
        return fuse(model.hold(views)), views, model.hold(plain_views), plain_views

    return hold
