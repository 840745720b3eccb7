"""Gaussian noise streams by name, addressable by tensor and element."""

from modnorm.noise.protocol import Block, NoiseScheme
from modnorm.noise.registry import get_scheme, scheme_names

__all__ = ["Block", "NoiseScheme", "get_scheme", "scheme_names"]
