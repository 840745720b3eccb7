"""Gaussian noise streams by name, addressable by tensor and element."""

from modnorm.noise.protocol import Block, NoiseScheme
from modnorm.noise.registry import PORTABLE, check_scheme, get_scheme, scheme_names

__all__ = ["PORTABLE", "Block", "NoiseScheme", "check_scheme", "get_scheme", "scheme_names"]
