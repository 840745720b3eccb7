"""Candidates with low-rank noise: definition, norms, layouts and refusals."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.geometry.scale_map import Norm, ScaleMap
from modnorm.noise import Block, get_scheme
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.low_rank import LowRankNoise

CPU = torch.device("cpu")
QKV = "model.layers.0.self_attn.qkv_proj.weight"
GATE_UP = "model.layers.0.mlp.gate_up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
FUSED = PhysicalTensor("qkv", (7, 5), (Part("q", 4), Part("k", 2), Part("v", 1)))


def sample(seed, stream, shape):
    scheme = get_scheme("portable-v1")
    return scheme.sample(seed, stream, shape, dtype=torch.bfloat16, device=CPU)


def defined_noise(tensor, rank, seed):
    """Compute the noise by the module's definition, in exact fractions."""
    lines = []
    for part in tensor.parts:
        left = sample(seed, f"{part.name}.lora_B", (part.rows, rank)).tolist()
        right = sample(seed, f"{part.name}.lora_A", (rank, tensor.shape[1])).tolist()
        for line in left:
            sums = [
                sum(Fraction(b) * Fraction(row[j]) for b, row in zip(line, right, strict=True))
                for j in range(tensor.shape[1])
            ]
            # float64 holds every such sum, so only float32 rounds.
            assert all(Fraction(float(one)) == one for one in sums)
            lines.append([float(np.float32(float(one))) for one in sums])
    return torch.tensor(lines)


@pytest.mark.parametrize("rank", [1, 2, 16, 64])
def test_follows_the_definition(rank):
    noise = LowRankNoise.draw(FUSED, rank, seed=9, device=CPU).block(Block.whole(FUSED.shape))
    assert noise.dtype == torch.float32
    assert torch.equal(noise, defined_noise(FUSED, rank, 9))


@given(data=st.data(), rank=st.integers(1, 20), seed=st.integers(0, 2**31 - 1))
def test_a_block_is_a_part_of_the_whole(data, rank, seed):
    def interval(length):
        return tuple(sorted(data.draw(st.tuples(*[st.integers(0, length)] * 2))))

    block = Block(interval(7), data.draw(st.one_of(st.none(), st.just(interval(5)))))
    noise = LowRankNoise.draw(FUSED, rank, seed=seed, device=CPU)
    assert torch.equal(noise.block(block), block.of(noise.block(Block.whole(FUSED.shape))))


def test_the_largest_rank_and_elements_are_exact():
    """Sums of 512 products of the largest elements are far below 2^53."""
    largest = torch.full((3, 512), 35_430 * 2.0**-13, dtype=torch.float64)
    noise = LowRankNoise([(largest, largest.T.contiguous())]).block(Block((0, 3)))
    assert set(noise.flatten().tolist()) == {float(np.float32(512 * 35_430**2 * 2.0**-26))}


def test_noise_has_the_rank_and_unit_variance():
    tensor = PhysicalTensor("large", (200, 300), (Part("large", 200),))
    noise = LowRankNoise.draw(tensor, 4, seed=3, device=CPU)
    values = noise.block(Block((0, 200))).double() / noise.norm(Norm.UNIT)
    singular = torch.linalg.svdvals(values)
    assert int((singular > 1e-4).sum()) == 4
    assert values.mean().item() == pytest.approx(0, abs=0.05)
    assert values.std().item() == pytest.approx(1, abs=0.15)


def test_every_element_follows_the_formula(low_rank):
    base, views = low_rank.base(torch.float32), low_rank.views(base=low_rank.base(torch.float32))
    resolved = low_rank.hold(views).apply(low_rank.descriptor(radius=2.0), low_rank.scale_map)
    coefficients = dict(
        zip((row.name for row in low_rank.scale_map.active), resolved.coefficients, strict=True)
    )
    for tensor in low_rank.layout:
        (view,) = views[tensor.name]
        expected = base[tensor.name]
        if tensor.name in coefficients:
            noise = defined_noise(tensor, 3, 1).numpy()
            product = np.float32(coefficients[tensor.name]) * noise
            expected = torch.from_numpy(expected.numpy() + product)
        assert torch.equal(view.storage, expected), tensor.name


def test_the_oracle_property(low_rank):
    """The scaled natural norm of each matrix's perturbation is the radius."""
    zeros = {name: torch.zeros(value.shape) for name, value in low_rank.base().items()}
    views = low_rank.views(base=zeros)
    low_rank.hold(views).apply(low_rank.descriptor(), low_rank.scale_map)
    for row in low_rank.scale_map.active:
        delta = views[row.name][0].storage.double()
        if row.norm is Norm.UNIT:
            continue
        spectral = row.norm is Norm.SPECTRAL
        norm = torch.linalg.svdvals(delta)[0] if spectral else delta.square().sum(1).max().sqrt()
        assert row.scale * norm.item() == pytest.approx(0.16, rel=1e-6), row.name


@pytest.mark.parametrize(
    "blocks",
    [
        {
            QKV: [Block((24, 32)), Block((0, 16)), Block((16, 24))],
            GATE_UP: [Block((0, 24)), Block((24, 48))],
        },
        {
            QKV: [Block((0, 13)), Block((13, 32))],
            DOWN: [Block((0, 16), (7, 24)), Block((0, 16), (0, 7))],
        },
    ],
)
def test_layout_and_order_of_slices_do_not_matter(low_rank, blocks):
    fused, cut = low_rank.hold(), low_rank.hold(low_rank.views(blocks))
    resolved = fused.apply(low_rank.descriptor(), low_rank.scale_map)
    assert cut.apply(low_rank.descriptor(), low_rank.scale_map) == resolved
    assert cut.sha256() == fused.sha256()
    cut.restore()
    assert cut.is_pristine()
    cut.apply(resolved, low_rank.scale_map)
    assert cut.sha256() == fused.sha256()


@pytest.mark.parametrize("rank", ["0", "-1", '"16"', "1.5", "true"])
def test_a_scale_map_with_another_rank_is_refused(low_rank, rank):
    text = low_rank.scale_map.to_json().replace('"rank":3', f'"rank":{rank}')
    with pytest.raises(Exception, match="rank is not a positive integer"):
        ScaleMap.from_json(text)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_cuda_rebuilds_the_same_bytes(low_rank, dtype):
    host = low_rank.hold(low_rank.views(base=low_rank.base(dtype)))
    moved = {name: value.cuda() for name, value in low_rank.base(dtype).items()}
    views = low_rank.views({QKV: [Block((0, 13)), Block((13, 32))]}, base=moved)
    digest = low_rank.scale_map.model_digest
    device = CandidateWeights(low_rank.layout, views, model_digest=digest)
    for seed in range(20):
        resolved = host.apply(low_rank.descriptor(seed, radius=2.0), low_rank.scale_map)
        device.apply(resolved, low_rank.scale_map)
        assert device.sha256() == host.sha256()
        host.restore()
        device.restore()
    assert device.is_pristine()
