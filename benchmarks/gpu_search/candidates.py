"""The candidates of a search: the modular norm without corrections, which needs no profile."""

from modnorm.checkpoint.reference import Checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import population_seeds

METHOD = "no_sensitivity"
RADIUS = 0.16
"""R of the paper for Qwen2.5."""


def scale_map_of(checkpoint: Checkpoint) -> ScaleMap:
    """Return the scales that both contenders perturb with."""
    return build_scale_map(METHOD, checkpoint)


def descriptor_of(scale_map: ScaleMap, seed: int) -> Descriptor:
    """Return the candidate of a seed, without coefficients."""
    return Descriptor("portable-v1", seed, scale_map.method, RADIUS, scale_map.digest)


def seeds_of(population: int) -> tuple[int, ...]:
    """Return the seed of each candidate."""
    return population_seeds(42, population, "nested")
