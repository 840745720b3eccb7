"""Noise schemes by name."""

from types import MappingProxyType

from modnorm.errors import InvalidInputError
from modnorm.noise.portable import PortableNoise
from modnorm.noise.protocol import NoiseScheme
from modnorm.noise.published import PublishedNoise

_SCHEMES: MappingProxyType[str, NoiseScheme] = MappingProxyType(
    {PortableNoise.name: PortableNoise(), PublishedNoise.name: PublishedNoise()}
)


def scheme_names() -> tuple[str, ...]:
    """Return the names of all schemes, the default first."""
    return tuple(_SCHEMES)


def get_scheme(name: str) -> NoiseScheme:
    """Return a scheme by name.

    Raises:
        InvalidInputError: there is no such scheme.
    """
    try:
        return _SCHEMES[name]
    except KeyError:
        raise InvalidInputError(
            f"there is no noise scheme {name!r}",
            field="population.noise",
            remedy=f"one of {', '.join(scheme_names())}",
        ) from None
