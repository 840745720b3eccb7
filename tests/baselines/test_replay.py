"""Steps equal literal replays of the formulas and of the published arithmetic, bit for bit."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from modnorm.baselines.updates import es_seeds, es_step, mezo_step, step_seed, zo_step
from modnorm.errors import CancelledError
from modnorm.noise import Block, get_scheme
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.lineage import Lineage, Rounding

CPU = torch.device("cpu")
MODEL = "5" * 64
REWARDS = (0.25, 0.5, 0.125, 1.0)


def noise_of(scheme, seed, name, value):
    return get_scheme(scheme).sample(seed, name, tuple(value.shape), dtype=value.dtype, device=CPU)


def es_run(noise, rounding, updates=3):
    steps = []
    for update in range(updates):
        seeds = es_seeds(42, update, len(REWARDS))
        steps.append(es_step(seeds, REWARDS[update:] + REWARDS[:update], alpha=0.05))
    return Lineage(MODEL, noise, rounding, tuple(steps))


def replay_es(small, lineage):
    """Compute element by element in numpy's float32, with explicit rounding."""
    weights = {name: value.clone() for name, value in small.base.items()}
    for update, step in enumerate(lineage.steps):
        rewards = np.array(REWARDS[update:] + REWARDS[:update], dtype=np.float64)
        shaped = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        for name, value in weights.items():
            total = np.zeros(value.shape, np.float32)
            for seed, score in zip(step.seeds, shaped, strict=True):
                total += np.float32(score) * noise_of(lineage.noise, seed, name, value).numpy()
            change = torch.from_numpy(total * np.float32(0.05 / len(rewards)))
            if lineage.rounding is Rounding.PUBLISHED:
                weights[name] = value + change.to(value.dtype)
            else:
                weights[name] = (value.to(torch.float32) + change).to(value.dtype)
    return weights


@pytest.mark.parametrize(
    ("noise", "rounding"),
    [("portable-v1", Rounding.ONCE), ("randopt-reseed-v1", Rounding.PUBLISHED)],
)
def test_es_equals_a_literal_replay(small, noise, rounding):
    lineage = es_run(noise, rounding)
    weights, memory = small.hold()

    weights.rebase(lineage)

    expected = replay_es(small, lineage)
    assert all(torch.equal(memory[name], expected[name]) for name in expected)
    assert not all(torch.equal(memory[name], small.base[name]) for name in expected)
    assert weights.is_pristine()


def test_published_candidates_of_es_round_twice(small):
    lineage = Lineage(MODEL, "randopt-reseed-v1", Rounding.PUBLISHED)
    weights, memory = small.hold()
    weights.rebase(lineage)
    candidate = Descriptor(
        "randopt-reseed-v1", 7, "randopt", 0.01, small.scale_map.digest, lineage=lineage.digest
    )

    weights.apply(candidate, small.scale_map)

    for name, value in small.base.items():
        z = torch.randn(value.shape, generator=torch.Generator().manual_seed(7), dtype=value.dtype)
        assert torch.equal(memory[name], value + z * 0.01)


def test_mezo_equals_a_literal_replay_of_both_sides_and_steps(small):
    epsilon, rate = 1e-2, 1e-2
    weights, memory = small.hold()
    expected = {name: value.clone() for name, value in small.base.items()}
    lineage = Lineage(MODEL, "portable-v1")
    for index, (plus, minus) in enumerate([(0.5, 0.25), (0.125, 0.375)]):
        seed = step_seed(42, index)
        weights.rebase(lineage)
        for sign in (1, -1):
            side = Descriptor(
                "portable-v1",
                seed,
                "randopt",
                sign * epsilon,
                small.scale_map.digest,
                lineage=lineage.digest,
            )
            weights.apply(side, small.scale_map)
            for name, value in expected.items():
                z = noise_of("portable-v1", seed, name, value).numpy()
                moved = value.float().numpy() + np.float32(sign * epsilon) * z
                assert torch.equal(memory[name], torch.from_numpy(moved).to(value.dtype))
            weights.restore()
        slope = np.float32(((-plus) - (-minus)) / (2 * epsilon))
        for name, value in expected.items():
            z = noise_of("portable-v1", seed, name, value).numpy()
            moved = value.float().numpy() + np.float32(-rate) * (slope * z)
            expected[name] = torch.from_numpy(moved).to(value.dtype)
        lineage = lineage.extended(mezo_step(seed, plus, minus, epsilon=epsilon, rate=rate))
    weights.rebase(lineage)

    assert all(torch.equal(memory[name], expected[name]) for name in expected)


def test_zo_with_unit_amplitudes_is_mezo(small):
    count = len(small.layout)
    plain = mezo_step(9, 0.5, 0.25, epsilon=1e-3, rate=1e-2)
    shaped = zo_step(9, 0.5, 0.25, raw=(1.0,) * count, scale=1.0, epsilon=1e-3, rate=1e-2)
    (one, first), (other, second) = small.hold(), small.hold()

    one.rebase(Lineage(MODEL, "portable-v1", steps=(plain,)))
    other.rebase(Lineage(MODEL, "portable-v1", steps=(shaped,)))

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_amplitude_moves_its_own_tensor(small):
    still = zo_step(
        9, 0.5, 0.25, raw=(0.0, 3.0, 0.0, 0.0, 0.0), scale=2.0, epsilon=1e-3, rate=1e-2
    )
    weights, memory = small.hold()

    weights.rebase(Lineage(MODEL, "portable-v1", steps=(still,)))

    moved = [name for name, value in small.base.items() if not torch.equal(memory[name], value)]
    assert moved == ["model.layers.0.self_attn.qkv_proj.weight"]


def test_any_path_to_a_state_gives_the_same_weights(small):
    lineage = es_run("portable-v1", Rounding.ONCE)
    (straight, _), (winding, _) = small.hold(), small.hold()
    straight.rebase(lineage)

    winding.rebase(lineage.until(1))
    early = winding.sha256()
    winding.rebase(lineage.until(2))
    winding.rebase(lineage)
    assert winding.sha256() == straight.sha256() != early

    winding.rebase(lineage.until(1))
    assert winding.sha256() == early
    winding.rebase(None)
    assert winding.sha256() == small.hold()[0].sha256()


@pytest.mark.parametrize("rounding", list(Rounding))
def test_an_interrupted_rebase_resumes_from_a_known_state(small, rounding):
    lineage = es_run("portable-v1", rounding)
    (straight, _), (broken, _) = small.hold(), small.hold()
    straight.rebase(lineage)
    left = 0

    def stop():
        nonlocal left
        left -= 1
        if left < 0:
            raise CancelledError("not wanted")

    for expected in lineage.digests[1:]:
        left = 1
        with pytest.raises(CancelledError) if expected != lineage.digest else nullcontext():
            broken.rebase(lineage, poll=stop)
        assert broken.state == expected
    assert broken.sha256() == straight.sha256()
    broken.rebase(lineage, poll=stop)  # nothing is left to do

    candidate = Descriptor("portable-v1", 7, "randopt", 0.01, small.scale_map.digest)
    fresh, _ = small.hold()
    broken.rebase(None)
    left = 0
    with pytest.raises(CancelledError):
        broken.rebase(lineage, poll=stop)
    for weights in (broken, fresh):
        weights.apply(candidate, small.scale_map)
    assert broken.sha256() == fresh.sha256()


def test_stages_split_a_lineage_by_numbers_of_seeds():
    lineage = es_run("portable-v1", Rounding.ONCE, updates=5)
    digests = lineage.digests

    def ends(state, seeds):
        return [stage.digest for stage in lineage.stages(state, seeds)]

    assert ends("", 1) == list(digests[1:])
    assert ends("", 8) == [digests[2], digests[4], digests[5]]
    assert ends(digests[3], 1) == [digests[4], digests[5]]
    assert ends(digests[5], 1) == [digests[5]]
    assert ends("elsewhere", 100) == ends(None, 100) == [digests[5]]
    assert [stage.digests for stage in lineage.stages(None, 1)][-2] == digests[:5]
    assert lineage.until(0).digest == Lineage(MODEL, "portable-v1").digest
    assert list(lineage.until(0).stages("", 1)) == [lineage.until(0)]


@pytest.mark.parametrize("noise", ["portable-v1", "randopt-reseed-v1"])
def test_a_state_does_not_depend_on_how_tensors_are_split(small, noise):
    """Rows of a fused projection are separate and unordered; columns are split as by ranks."""
    qkv, down = "model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.mlp.down_proj.weight"
    blocks = {
        qkv: [Block((24, 32)), Block((0, 24))],
        down: [Block((0, 16), (7, 24)), Block((0, 16), (0, 7))],
    }
    memory = {name: value.clone() for name, value in small.base.items()}
    views = {
        name: [
            WeightView(block.of(value).clone(), block)
            for block in blocks.get(name, [Block.whole(tuple(value.shape))])
        ]
        for name, value in memory.items()
    }
    cut = CandidateWeights(
        small.layout,
        views,
        model_digest=MODEL,
        origin=lambda tensors: (small.base[one.name] for one in tensors),
    )
    lineage = es_run(noise, Rounding.ONCE)
    whole, _ = small.hold()

    whole.rebase(lineage)
    cut.rebase(lineage)
    assert cut.sha256() == whole.sha256()

    cut.rebase(None)
    assert cut.sha256() == small.hold()[0].sha256()
