"""From a population to the descriptors of its candidates."""

from collections.abc import Iterator
from typing import Protocol

from modnorm.noise import get_scheme
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.population import Pool, population_seeds


class Geometry(Protocol):
    """What a descriptor says of its scale map: a `ScaleMap`, or a reference to one."""

    @property
    def method(self) -> str:
        """Method that it is of."""

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""


def sample_descriptors(  # noqa: PLR0913 - a population is named by all of these
    scale_map: Geometry, *, radius: float, noise: str, seed: int, size: int, pool: Pool
) -> Iterator[Descriptor]:
    """Return the descriptors of a population in candidate order, coefficients unresolved.

    Args:
        scale_map: Geometry that the candidates are drawn with; it names the method.
        radius: R, or sigma for isotropic noise.
        noise: Noise scheme by name.
        seed: Population seed.
        size: Number of candidates.
        pool: `nested` or `published`, see `population_seeds`.

    Raises:
        InvalidInputError: unknown noise scheme or pool, or a size or seed out of range.
    """
    scheme = get_scheme(noise).name
    seeds = population_seeds(seed, size, pool)
    method, digest = scale_map.method, scale_map.digest
    return (
        Descriptor(noise=scheme, seed=member, method=method, radius=radius, scale_map=digest)
        for member in seeds
    )
