"""The descriptors of a population, drawn in order and batched for the wire."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from modnorm.errors import InvalidInputError
from modnorm.files import is_digest
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import check_rank, needs_profile
from modnorm.perturbation.sampling import sample_descriptors
from modnorm.spec import PopulationSpec, parse_section
from modnorm.v1 import sampling_pb2
from modnorm.wire.conversions import descriptor_to_proto, method_from_proto

BATCH = 512
"""Most descriptors in one message."""


@dataclass(frozen=True, slots=True)
class _ScaleMapReference:
    method: str
    digest: str


def draw(request: sampling_pb2.SampleDescriptorsRequest) -> Iterator[Descriptor]:
    """Return the descriptors of a population, in candidate order.

    Raises:
        InvalidInputError: the method, noise scheme or pool is unknown. Size or seed are out of
            range. The scale map is missing. The method or the noise scheme allows no rank.
    """
    method = method_from_proto(request.method)
    needs_profile(method.name)
    population = parse_section(
        PopulationSpec,
        {
            "size": request.size,
            "seed": request.seed,
            "pool": request.pool,
            "noise": request.noise,
        },
        field="population",
    )
    check_rank(method, population.noise)
    if not is_digest(request.scale_map_digest):
        raise InvalidInputError(
            f"{request.scale_map_digest!r} is not a digest",
            field="scale_map_digest",
            remedy="pass the digest that BuildScaleMap returned",
        )
    return sample_descriptors(
        _ScaleMapReference(method.name, request.scale_map_digest),
        radius=method.radius,
        noise=population.noise,
        seed=population.seed,
        size=population.size,
        pool=population.pool,
    )


def batched(
    descriptors: Iterator[Descriptor],
) -> Iterator[sampling_pb2.SampleDescriptorsResponse]:
    """Yield messages with up to `BATCH` descriptors."""
    offset = 0
    while batch := [descriptor_to_proto(one) for one in islice(descriptors, BATCH)]:
        yield sampling_pb2.SampleDescriptorsResponse(offset=offset, descriptors=batch)
        offset += len(batch)
