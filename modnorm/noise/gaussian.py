"""The table that maps 16 random bits to a standard Gaussian value."""

import hashlib
from functools import cache
from statistics import NormalDist

import numpy as np
import torch

from modnorm.errors import IncompatibleError

STEP = 2.0**-13
"""Spacing of the values; magnitudes are integer multiples of it."""
MAGNITUDES = 2**15
MAGNITUDES_SHA256 = "e5433a1a9e43646c24afda8cce5a435984a058e0bc0e074836168375a878df32"
"""SHA-256 of the 32,768 magnitudes as little-endian int32."""


@cache
def magnitudes() -> tuple[int, ...]:
    """Return the 32,768 magnitudes in units of `STEP`, ascending from 0 to 35,430.

    Magnitude `i` is the quantile Phi^-1(0.5 + (i + 0.5) / 65536), rounded to a multiple of
    2^-13. Every quantile is at least 1e-5 steps from a rounding boundary, a million times the
    error of a correct logarithm. So all machines round to the same table.

    Raises:
        IncompatibleError: this machine's math library gives another table.
    """
    quantile = NormalDist().inv_cdf
    table = tuple(
        round(quantile(0.5 + (index + 0.5) / (2 * MAGNITUDES)) / STEP)
        for index in range(MAGNITUDES)
    )
    if hashlib.sha256(np.array(table, dtype="<i4").tobytes()).hexdigest() != MAGNITUDES_SHA256:
        raise IncompatibleError(
            "the Gaussian quantile table differs from the pinned one",
            field="population.noise",
            remedy="use another Python build: the logarithm of this build is inaccurate",
        )
    return table


@cache
def gaussian_table(device: torch.device) -> torch.Tensor:
    """Return the value of each 16-bit number: fp32, shape (65536,), read-only by convention.

    The low 15 bits select a magnitude; bit 15 is the sign, 1 for negative. Zero is always +0.
    """
    positive = torch.tensor(magnitudes(), dtype=torch.int32)
    return torch.cat((positive, -positive)).to(torch.float32).mul_(STEP).to(device)
