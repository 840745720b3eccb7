"""Candidates by kernels against candidates by the plain version, byte for byte."""

from dataclasses import replace

import pytest
import torch

from modnorm.errors import CandidateError, PreconditionError
from modnorm.geometry.scale_map import Norm
from modnorm.noise import Block, get_scheme
from modnorm.perturbation.held_tensor import WeightView

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.noise.portable import stream_key
from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.launch import MemoryBlock, plan_launches

QKV = "model.layers.0.self_attn.qkv_proj.weight"
BIAS = "model.layers.0.self_attn.qkv_proj.bias"
GATE_UP = "model.layers.0.mlp.gate_up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
UNFUSED = {
    QKV: [Block((0, 16)), Block((16, 24)), Block((24, 32))],
    BIAS: [Block((0, 16)), Block((16, 24)), Block((24, 32))],
    GATE_UP: [Block((0, 24)), Block((24, 48))],
}
COLUMNS = {DOWN: [Block((0, 16), (7, 24)), Block((0, 16), (0, 7))]}
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
ODD = [
    ("odd", (5, 7), Norm.SPECTRAL, 2.0),
    ("wide", (3, 41), Norm.SPECTRAL, 3.0),
    ("tall", (41, 3), Norm.SPECTRAL, 3.0),
    ("row", (1, 9), Norm.SPECTRAL, 4.0),
    ("embed", (11, 13), Norm.MAX_ROW, 2.0),
    ("vector", (13,), Norm.MAX_ABS, 5.0),
    ("scalar", (), Norm.MAX_ABS, 7.0),
    ("cube", (3, 5, 7), Norm.FROBENIUS, 3.0),
    ("plain", (9, 8), Norm.UNIT, 3.0),
]


def on(device, tensors):
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def storages(views):
    return [part.storage for parts in views.values() for part in parts]


def same(ours, theirs):
    width = {2: torch.int16, 4: torch.int32}[ours.element_size()]
    return torch.equal(ours.cpu().view(width), theirs.cpu().view(width))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rebuilt_weights_are_equal(model, pair, dtype):
    fused, _, plain, _ = pair(model, dtype=dtype)
    resolved = plain.apply(model.descriptor(radius=2.0), model.scale_map)

    assert fused.apply(resolved, model.scale_map) == resolved
    assert fused.sha256() == plain.sha256()


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_shapes(model_of, pair, dtype):
    model = model_of("modular_norm", ODD)
    fused, _, plain, _ = pair(model, dtype=dtype)

    resolved = plain.apply(model.descriptor(radius=2.0), model.scale_map)
    fused.apply(resolved, model.scale_map)

    assert fused.sha256() == plain.sha256()


@pytest.mark.parametrize(
    "blocks",
    [
        UNFUSED,
        COLUMNS,
        {
            QKV: [Block((8, 16)), Block((20, 24)), Block((28, 32))],
            GATE_UP: [Block((12, 24)), Block((36, 48))],
            DOWN: [Block((0, 16), (12, 24))],
            BIAS: [Block((5, 9)), Block((11, 30))],
        },
    ],
)
def test_views_and_shards(model, pair, blocks):
    fused, views, plain, plain_views = pair(model, blocks)

    resolved = plain.apply(model.descriptor(radius=2.0), model.scale_map)
    fused.apply(resolved, model.scale_map)

    for ours, theirs in zip(storages(views), storages(plain_views), strict=True):
        assert same(ours, theirs)
    fused.restore()
    assert fused.is_pristine()


def test_strided_memory_is_written_in_place(model, fuse, device):
    base = model.base()
    wide = torch.zeros(20, 40, dtype=torch.bfloat16, device=device)
    tall = torch.zeros(24, 16, dtype=torch.bfloat16, device=device)
    views = model.views(base=on(device, base))
    place = wide[2:18, 3:27]
    place.copy_(base[DOWN])
    views[DOWN] = [WeightView(place, Block((0, 16)))]
    tall.T[:, :16].copy_(base["model.layers.0.self_attn.o_proj.weight"])
    views["model.layers.0.self_attn.o_proj.weight"] = [WeightView(tall.T[:, :16], Block((0, 16)))]
    plain = model.hold()
    resolved = plain.apply(model.descriptor(radius=2.0), model.scale_map)

    fused = fuse(model.hold(views))
    fused.apply(resolved, model.scale_map)

    assert fused.sha256() == plain.sha256()
    assert not wide[:, :3].any()
    assert not wide[:, 27:].any()
    assert not tall[16:].any()
    fused.restore()
    assert torch.equal(place.cpu(), base[DOWN])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 1e-38, 3e38])
def test_rounding_of_all_sizes(isotropic, fuse, device, dtype, size):
    """Subnormals, ties, negative zeros, overflow to infinity: the base in every binade."""
    torch.manual_seed(3)
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    limits = torch.iinfo(bits)
    base = {}
    for tensor in isotropic.layout:
        raw = torch.randint(limits.min, limits.max, tensor.shape, dtype=bits)
        values = raw.view(dtype)
        values[~values.isfinite()] = -0.0
        values.view(-1)[::3] = -0.0
        base[tensor.name] = values
    plain = isotropic.hold(isotropic.views(base=base))
    fused = fuse(isotropic.hold(isotropic.views(base=on(device, base))))

    resolved = plain.apply(isotropic.descriptor(radius=size), isotropic.scale_map)
    fused.apply(resolved, isotropic.scale_map)

    assert fused.sha256() == plain.sha256()


@pytest.mark.parametrize("start", [2**35 - 24, 2**40 + 8])
@pytest.mark.parametrize("shared", [True, False])
def test_elements_past_the_first_counter_word(device, small, fuse, model, start, shared):
    """A shard far inside a tensor too large to hold: block numbers of more than 32 bits."""
    held = torch.zeros(48, device=device)
    one = MemoryBlock(
        held=held.data_ptr(), base=held.clone().data_ptr(), start=start, stride=0, rows=1,
        columns=48, held_strides=(0, 1), base_strides=(0, 1), tensor=0,
    )  # fmt: skip
    base = torch.zeros(48, device=device)
    (work,) = plan_launches([(held.dtype, replace(one, base=base.data_ptr()))], 8, device)
    table = fuse(model.hold(model.views(base=on(device, model.base()))))._fused._magnitudes

    launch.write(
        work,
        keys=torch.tensor([stream_key("portable-v1", 1, "far")], device=device),
        coefficients=torch.ones(1, device=device),
        magnitudes=table,
        sizes=replace(small, shared_table=shared),
    )

    expected = get_scheme("portable-v1").sample(
        1, "far", (2**41,), dtype=held.dtype, device=torch.device("cpu"),
        block=Block((start, start + 48)),
    )  # fmt: skip
    assert torch.equal(held.cpu(), expected)


@pytest.mark.parametrize("change", ["shared_table", "write_blocks", "copy_blocks"])
def test_launch_sizes_change_no_weight(model, fuse, device, small, change):
    sizes = replace(small, **{change: {"shared_table": False}.get(change, 16)})
    fused = fuse(model.hold(model.views(UNFUSED, on(device, model.base()))), sizes)
    plain = model.hold()
    resolved = plain.apply(model.descriptor(radius=2.0), model.scale_map)

    fused.apply(resolved, model.scale_map)

    assert fused.sha256() == plain.sha256()
    fused.restore()
    assert fused.is_pristine()


def test_overflowing_coefficients_restore_the_base(isotropic, pair):
    fused, _, _, _ = pair(isotropic)

    with pytest.raises(CandidateError, match=r"model\.embed_tokens\.weight is inf"):
        fused.apply(isotropic.descriptor(radius=1e300), isotropic.scale_map)

    assert fused.is_pristine()
    fused.apply(isotropic.descriptor(), isotropic.scale_map)
    with pytest.raises(PreconditionError):
        fused.apply(isotropic.descriptor(), isotropic.scale_map)


def test_published_noise_is_written_plainly(model, pair):
    fused, _, plain, _ = pair(model)
    descriptor = model.descriptor(noise="randopt-reseed-v1")

    resolved = fused.apply(descriptor, model.scale_map)

    assert resolved.coefficients is not None
    if not torch.cuda.is_available():
        assert plain.apply(descriptor, model.scale_map) == resolved
        assert fused.sha256() == plain.sha256()
