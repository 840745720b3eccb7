"""Gaussian noise streams by name, addressable by tensor and element."""

from modnorm.noise.protocol import Block, NoiseScheme
from modnorm.noise.registry import check_scheme, get_scheme, scheme_names

__all__ = ["Block", "NoiseScheme", "check_scheme", "get_scheme", "scheme_names"]
