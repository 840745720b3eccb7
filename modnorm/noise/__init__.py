"""Gaussian noise streams by name, addressable by tensor and element.

The modules of the schemes load torch, so they are imported on demand.
"""

from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of
from modnorm.noise.protocol import Block, NoiseScheme

__all__ = ["PORTABLE", "Block", "NoiseScheme", "check_scheme", "get_scheme"]

PORTABLE = "portable-v1"
"""The default scheme."""

_CLASSES: Mapping[str, str] = {
    PORTABLE: "modnorm.noise.portable:PortableNoise",
    "randopt-reseed-v1": "modnorm.noise.published:PublishedNoise",
}


def check_scheme(name: str) -> None:
    if name not in _CLASSES:
        raise InvalidInputError(
            f"there is no noise scheme {name!r}",
            field="population.noise",
            remedy=one_of(name, _CLASSES),
        )


@cache
def get_scheme(name: str) -> NoiseScheme:
    check_scheme(name)
    scheme: NoiseScheme = resolve_name(_CLASSES[name])()
    return scheme
