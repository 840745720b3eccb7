import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from modnorm.errors import CandidateError, IncompatibleError, PreconditionError
from modnorm.geometry.norms import natural_norm
from modnorm.noise import Block, get_scheme
from modnorm.perturbation import candidate_weights as module
from modnorm.perturbation import held_tensor as writing
from tests.perturbation.conftest import BIAS, DOWN, GATE_UP, QKV

NOISES = ["portable-v1", "randopt-reseed-v1"]

UNFUSED = {
    QKV: [Block((0, 16)), Block((16, 24)), Block((24, 32))],
    BIAS: [Block((0, 16)), Block((16, 24)), Block((24, 32))],
    GATE_UP: [Block((0, 24)), Block((24, 48))],
}
COLUMNS = {DOWN: [Block((0, 16), (7, 24)), Block((0, 16), (0, 7))]}


def contents(views):
    return {
        name: torch.cat([part.storage.flatten() for part in parts])
        for name, parts in views.items()
    }


def round_to(dtype: torch.dtype, value: np.float32) -> float:
    """Round one float32 to nearest, ties to even, in integers."""
    if dtype == torch.float32:
        return float(value)
    if dtype == torch.float16:
        return float(np.float16(value))
    bits = int(value.view(np.uint32))
    bits += 0x7FFF + (bits >> 16 & 1)
    return float(np.uint32(bits & 0xFFFF0000).view(np.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("noise", NOISES)
def test_every_element_follows_the_formula(model, dtype, noise):
    """A literal loop over elements, in numpy's float32."""
    base, views = model.base(dtype), model.views(base=model.base(dtype))

    resolved = model.hold(views).apply(model.descriptor(noise=noise, radius=2.0), model.scale_map)

    coefficients = dict(
        zip((row.name for row in model.scale_map.active), resolved.coefficients, strict=True)
    )
    for name, coefficient in coefficients.items():
        z = get_scheme(noise).sample(
            1, name, tuple(base[name].shape), dtype=dtype, device=torch.device("cpu")
        )
        expected = [
            round_to(dtype, np.float32(b) + np.float32(coefficient) * np.float32(e))
            for b, e in zip(base[name].flatten().tolist(), z.flatten().tolist(), strict=True)
        ]
        assert contents(views)[name].tolist() == expected


@pytest.mark.parametrize("noise", NOISES)
def test_coefficients_follow_the_formula(model, noise):
    resolved = model.hold().apply(model.descriptor(noise=noise), model.scale_map)

    for row, coefficient in zip(model.scale_map.active, resolved.coefficients, strict=True):
        z = get_scheme(noise).sample(
            1, row.name, row.shape, dtype=torch.bfloat16, device=torch.device("cpu")
        )
        norm = natural_norm(z, row.norm).item()
        assert coefficient == float(np.float32(0.16 / (row.scale * max(norm, 1e-12))))


def test_tensor_parallel_ranks_hold_the_same_candidate(model):
    """Two ranks split rows of q, k, v, gate and up, and columns of down."""
    ranks = [
        {
            QKV: [Block((8 * r, 8 * r + 8)), Block((16 + 4 * r, 20 + 4 * r)),
                  Block((24 + 4 * r, 28 + 4 * r))],
            GATE_UP: [Block((12 * r, 12 * r + 12)), Block((24 + 12 * r, 36 + 12 * r))],
            DOWN: [Block((0, 16), (12 * r, 12 * r + 12))],
        }
        for r in range(2)
    ]  # fmt: skip
    whole = model.views()
    resolved = model.hold(whole).apply(model.descriptor(), model.scale_map)

    for blocks in ranks:
        views = model.views(blocks)
        rank = model.hold(views)
        assert rank.apply(model.descriptor(), model.scale_map) == resolved
        _assert_parts_equal(views, whole)
        rank.restore()
        rank.apply(resolved, model.scale_map)
        _assert_parts_equal(views, whole)
        with pytest.raises(PreconditionError, match="shard"):
            rank.sha256()
        rank.restore()
        assert rank.is_pristine()


def _assert_parts_equal(views, whole):
    for name, parts in views.items():
        for part in parts:
            assert torch.equal(part.storage, part.block.of(whole[name][0].storage))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("blocks", [None, UNFUSED | COLUMNS])
def test_rebuild_from_stored_coefficients_gives_the_same_bytes(model, noise, blocks):
    weights = model.hold()
    resolved = weights.apply(model.descriptor(noise=noise), model.scale_map)

    other = model.hold(model.views(blocks))

    assert other.apply(resolved, model.scale_map) == resolved
    assert other.sha256() == weights.sha256()


def test_hundreds_of_candidates_leave_no_trace(model):
    weights = model.hold(model.views(UNFUSED))
    base = weights.sha256()
    draw = random.Random(0)
    seen: dict[int, tuple[str, tuple[float, ...]]] = {}

    for _ in range(300):
        seed = draw.randrange(30)
        descriptor = model.descriptor(seed)
        if seed in seen and draw.random() < 0.5:
            descriptor = descriptor.resolved(seen[seed][1])
        coefficients = weights.apply(descriptor, model.scale_map).coefficients or ()
        state = weights.sha256(), coefficients
        assert seen.setdefault(seed, state) == state
        weights.restore()
        assert weights.is_pristine()

    assert weights.sha256() == base
    assert len({digest for digest, _ in seen.values()}) == 30


def test_the_engine_sees_the_candidate_which_is_not_pristine(model):
    views = model.views()
    weights = model.hold(views)
    places = [part.storage.data_ptr() for parts in views.values() for part in parts]

    weights.apply(model.descriptor(), model.scale_map)

    assert not weights.is_pristine()
    assert places == [part.storage.data_ptr() for parts in views.values() for part in parts]
    weights.restore()
    weights.restore()
    assert weights.is_pristine()


def test_only_one_candidate_at_a_time(model):
    weights = model.hold()
    weights.apply(model.descriptor(1), model.scale_map)
    digest = weights.sha256()

    with pytest.raises(PreconditionError, match="restore the base first"):
        weights.apply(model.descriptor(2), model.scale_map)

    assert weights.sha256() == digest


@pytest.mark.parametrize(
    "change", [{"scale_map": "0" * 64}, {"method": "randopt"}, {"noise": "white-v9"}]
)
def test_foreign_descriptor_is_incompatible(model, change):
    weights = model.hold()

    with pytest.raises(IncompatibleError):
        weights.apply(replace(model.descriptor(), **change), model.scale_map)

    assert weights.is_pristine()


def _without_last(scale_map):
    return replace(scale_map, tensors=scale_map.tensors[:-1])


def _swapped(scale_map):
    first, second, *rest = scale_map.tensors
    return replace(scale_map, tensors=(second, first, *rest))


def _reshaped(scale_map):
    first, *rest = scale_map.tensors
    return replace(scale_map, tensors=(replace(first, shape=(38, 16)), *rest))


def _other_model(scale_map):
    return replace(scale_map, model_digest="6" * 64)


@pytest.mark.parametrize("change", [_without_last, _swapped, _reshaped, _other_model])
def test_scale_map_of_another_model_is_incompatible(model, change):
    scale_map = change(model.scale_map)
    descriptor = replace(model.descriptor(), scale_map=scale_map.digest)
    weights = model.hold()

    with pytest.raises(IncompatibleError):
        weights.apply(descriptor, scale_map)

    assert weights.is_pristine()


@pytest.mark.parametrize(
    "change",
    [
        lambda coefficients: coefficients[:-1],
        lambda coefficients: (*coefficients, 1.0),
        lambda coefficients: (float("nan"), *coefficients[1:]),
        lambda coefficients: (*coefficients[:-1], float("inf")),
        lambda coefficients: (0.1, *coefficients[1:]),
        lambda coefficients: (1e300, *coefficients[1:]),
        lambda coefficients: (),
    ],
)
def test_bad_coefficients_are_refused(model, change):
    weights = model.hold()
    resolved = weights.apply(model.descriptor(), model.scale_map)
    weights.restore()

    with pytest.raises(CandidateError):
        weights.apply(resolved.resolved(change(resolved.coefficients)), model.scale_map)

    assert weights.is_pristine()


def test_overflowing_coefficients_restore_the_base_and_name_the_tensor(model):
    weights = model.hold()

    with pytest.raises(CandidateError, match=r"model\.embed_tokens\.weight is inf"):
        weights.apply(model.descriptor(radius=1e300), model.scale_map)

    assert weights.is_pristine()
    weights.apply(model.descriptor(), model.scale_map)


def test_failure_half_way_restores_the_base(model, monkeypatch):
    weights = model.hold()
    calls = []

    def fail_at_the_third(z, norm):
        calls.append(weights.is_pristine())
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return natural_norm(z, norm)

    with monkeypatch.context() as patch:
        patch.setattr(module, "natural_norm", fail_at_the_third)
        with pytest.raises(RuntimeError, match="out of memory"):
            weights.apply(model.descriptor(), model.scale_map)

    assert calls == [True, False, False]
    assert weights.is_pristine()
    weights.apply(model.descriptor(), model.scale_map)


def test_views_must_name_exactly_the_tensors_of_the_layout(model):
    views = model.views()
    missing = {name: parts for name, parts in views.items() if name != DOWN}

    with pytest.raises(IncompatibleError, match="no view of"):
        model.hold(missing)
    with pytest.raises(IncompatibleError, match="lm_head"):
        model.hold({**views, "lm_head.weight": views[DOWN]})


def test_norm_of_zero_is_floored(model, monkeypatch):
    """Real noise never has norm 0; the coefficient stays finite nevertheless."""
    monkeypatch.setattr(
        module, "natural_norm", lambda z, norm: torch.zeros((), dtype=torch.float32)
    )
    resolved = model.hold().apply(model.descriptor(radius=1e-30), model.scale_map)

    scales = [row.scale for row in model.scale_map.active]
    assert list(resolved.coefficients) == [
        float(np.float32(1e-30 / (scale * 1e-12))) for scale in scales
    ]


@pytest.mark.parametrize("elements", [1, 100, 5000])
def test_the_size_of_a_chunk_does_not_matter(model, monkeypatch, elements):
    whole = model.hold()
    resolved = whole.apply(model.descriptor(), model.scale_map)

    monkeypatch.setattr(writing, "_CPU_CHUNK", elements)
    weights = model.hold()

    assert weights.apply(model.descriptor(), model.scale_map) == resolved
    assert weights.sha256() == whole.sha256()
    weights.restore()
    weights.apply(resolved, model.scale_map)
    assert weights.sha256() == whole.sha256()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_cuda_rebuilds_the_same_bytes(model, dtype):
    host = model.hold(model.views(base=model.base(dtype)))
    moved = {name: value.cuda() for name, value in model.base(dtype).items()}
    device = model.hold(model.views(UNFUSED | COLUMNS, base=moved))

    for seed in range(20):
        resolved = host.apply(model.descriptor(seed, radius=2.0), model.scale_map)
        device.apply(resolved, model.scale_map)
        assert device.sha256() == host.sha256()
        host.restore()
        device.restore()
    assert device.is_pristine()
