"""Population seeds, and the descriptors of a population's candidates."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Literal

import numpy as np
import torch

from modnorm.errors import InvalidInputError
from modnorm.noise import get_scheme
from modnorm.noise.portable import philox4x32, stream_key
from modnorm.perturbation.descriptor import Descriptor

Pool = Literal["nested", "published"]
SEED_LIMIT = 2**31
"""Candidate seeds are in [0, 2^31), as in the published pools."""
_NESTED = "nested-v1"
_COUNTERS = 1024


def population_seeds(seed: int, size: int, pool: Pool) -> tuple[int, ...]:
    """Return the candidate seeds of a population: distinct, in [0, 2^31), in candidate order.

    `nested` is a stream: its first n members do not depend on `size`, so that a population can
    grow. Philox4x32-10 with the key of the text `nested-v1 LF seed LF` (see
    `modnorm.noise.portable.stream_key`) turns the counters (0, 0, 0, 0), (1, 0, 0, 0), ... into 4
    words each. The members are the words in order, without their lowest bit and without repeats.

    `published` is `numpy.random.default_rng(seed).choice(2**31, size, replace=False)`, as in the
    published runs. Its pools of different sizes have nothing in common.
    """
    if not 1 <= size <= SEED_LIMIT:
        raise InvalidInputError(f"{size} is not in [1, 2^31]", field="population.size")
    if seed < 0:
        raise InvalidInputError(f"{seed} is negative", field="population.seed")
    match pool:
        case "nested":
            key = stream_key(_NESTED, seed)
            members: dict[int, None] = {}
            for start in count(0, _COUNTERS):
                counters = torch.arange(start, start + _COUNTERS, dtype=torch.int64)
                zero = torch.zeros_like(counters)
                words = torch.stack(philox4x32((counters, zero, zero, zero), key), dim=1)
                members.update(dict.fromkeys((words >> 1).flatten().tolist()))
                if len(members) >= size:
                    break
            return tuple(islice(members, size))
        case "published":
            drawn = np.random.default_rng(seed).choice(SEED_LIMIT, size=size, replace=False)
            return tuple(drawn.tolist())
    raise InvalidInputError(
        f"there is no pool {pool!r}", field="population.pool", remedy="one of nested, published"
    )


def sample_descriptors(  # noqa: PLR0913 - all of these identify a population
    method: str, scale_map: str, *, radius: float, noise: str, seed: int, size: int, pool: Pool
) -> Iterator[Descriptor]:
    """Return the descriptors of a population in candidate order, coefficients unresolved.

    `scale_map` is the digest of the method's scale map.
    """
    scheme = get_scheme(noise).name
    seeds = population_seeds(seed, size, pool)
    return (
        Descriptor(noise=scheme, seed=member, method=method, radius=radius, scale_map=scale_map)
        for member in seeds
    )
