"""A candidate is equal in the engine's unfused layout and in any division of the fused one."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import Engine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.methods import build_scale_map

SEED = 7


@pytest.fixture(
    params=[("modular_norm", None), ("randopt", None), ("modular_norm", 3)],
    ids=["modular_norm", "randopt", "rank 3"],
)
def scale_map(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> ScaleMap:
    """Return maps of noise that is normalised whole, made by blocks, and of low rank."""
    method, rank = request.param
    layers = checkpoint.config["num_hidden_layers"]
    assert isinstance(layers, int)
    return build_scale_map(
        method,
        checkpoint,
        sensitivities=[
            {"attention_module": 0.5 + layer, "mlp_module": 6.0 - layer / 2}
            for layer in range(layers)
        ],
        rank=rank,
    )


def test_every_division_into_blocks_gives_the_same_candidate(
    checkpoint: Checkpoint, scale_map: ScaleMap, engine: Engine
) -> None:
    descriptor = Descriptor("portable-v1", SEED, scale_map.method, 0.1, scale_map.digest)
    with engine.candidate(descriptor, scale_map) as resolved:
        digest = engine.weights_sha256()
    on_gpu = engine.environment["device"] != "cpu"
    for cut in range(2):
        weights = fused(checkpoint, random.Random(cut))
        found = weights.apply(descriptor, scale_map)
        if on_gpu:
            # A GPU sums norms in another order, so the engine's resolved coefficients are used.
            assert found.coefficients == pytest.approx(resolved.coefficients, rel=1e-5)
        else:
            assert found == resolved
            assert weights.sha256() == digest
        weights.restore()
        weights.apply(resolved, scale_map)
        assert weights.sha256() == digest


def fused(checkpoint: Checkpoint, draw: random.Random) -> CandidateWeights:
    """Hold the stored, fused tensors in random blocks; tensors and blocks in random order."""
    stored = CheckpointWeights(checkpoint)
    views = {}
    for tensor in draw.sample(stored.layout, len(stored.layout)):
        whole = stored.read(tensor)
        parts = list(blocks(tensor.shape, draw))
        draw.shuffle(parts)
        views[tensor.name] = [WeightView(block.of(whole).clone(), block) for block in parts]
    return CandidateWeights(stored.layout, views, model_digest=checkpoint.digest)


def blocks(shape: Sequence[int], draw: random.Random) -> Iterator[Block]:
    """Cut a tensor into bands of rows, and each band of a matrix into columns."""
    for rows in ranges(shape[0], draw):
        if len(shape) == 1:
            yield Block(rows)
            continue
        for columns in ranges(shape[1], draw):
            yield Block(rows, columns)


def ranges(length: int, draw: random.Random) -> Iterator[tuple[int, int]]:
    """Cut a length into one to four ranges that are not empty."""
    inner = draw.sample(range(1, length), draw.randrange(4))
    return pairwise(sorted([0, *inner, length]))
