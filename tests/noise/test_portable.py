import hashlib
import struct
from contextlib import nullcontext
from math import erf, exp, pi, sqrt
from statistics import NormalDist
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.errors import IncompatibleError
from modnorm.noise import Block, get_scheme, portable
from modnorm.noise.portable import STEP, find_kernel, gaussian_table, magnitudes, philox4x32

CPU = torch.device("cpu")
SCHEME = get_scheme("portable-v1")


def sample(
    seed: int, name: str, shape: tuple[int, ...], block: Block | None = None
) -> torch.Tensor:
    return SCHEME.sample(seed, name, shape, dtype=torch.bfloat16, device=CPU, block=block)


def defined_value(seed: int, name: str, element: int) -> float:
    """Compute one element by the module's definition, in Python integers."""
    key = hashlib.sha256(f"portable-v1\n{seed}\n{name}".encode()).digest()
    k0, k1 = struct.unpack("<II", key[:8])
    number = element // 8
    word = [number % 2**32, number // 2**32, 0, 0]
    for _ in range(10):
        first, second = word[0] * 0xD2511F53, word[2] * 0xCD9E8D57
        word = [
            second >> 32 ^ word[1] ^ k0,
            second % 2**32,
            first >> 32 ^ word[3] ^ k1,
            first % 2**32,
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    lane = element % 8
    bits = word[lane // 2] >> 16 * (lane % 2) & 0xFFFF
    magnitude = magnitudes()[bits & 0x7FFF]
    return (-magnitude if bits >> 15 else magnitude) * 2.0**-13


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**63 - 1])
def test_follows_the_definition(seed):
    noise = sample(seed, "model.layers.0.mlp.down_proj.weight", (13, 11))

    assert noise.dtype == torch.float32
    assert noise.flatten().tolist() == [
        defined_value(seed, "model.layers.0.mlp.down_proj.weight", element)
        for element in range(13 * 11)
    ]


def test_element_numbers_use_both_counter_words():
    first = 2**36 + 5
    shape = (2**37, 3)

    noise = sample(9, "huge", shape, Block((first, first + 4), (1, 3)))

    assert noise.tolist() == [
        [defined_value(9, "huge", 3 * row + column) for column in (1, 2)]
        for row in range(first, first + 4)
    ]


def test_golden_bytes():
    noise = sample(42, "model.embed_tokens.weight", (257, 131))

    digest = hashlib.sha256(noise.numpy().astype("<f4").tobytes()).hexdigest()

    assert digest == "d2dc49eed9c00b1f18b88979d3657898d2fe50559ad8a652414fe67147a0b610"


Case = tuple[tuple[int, ...], Block]


@st.composite
def blocks(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    columns = None
    if len(shape) == 2 and draw(st.booleans()):
        columns = draw(ranges(shape[1]))
    return shape, Block(draw(ranges(shape[0])), columns)


@st.composite
def ranges(draw: st.DrawFn, length: int) -> tuple[int, int]:
    start = draw(st.integers(0, length))
    return start, draw(st.integers(start, length))


@settings(deadline=None)
@given(blocks(), st.integers(0, 2**63 - 1), st.integers(1, 9))
def test_any_block_is_a_slice_of_the_whole_for_any_chunk(
    case: Case, seed: int, chunk: int
) -> None:
    shape, block = case
    whole = sample(seed, "p", shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portable, "_CPU_CHUNK", chunk)
        part = sample(seed, "p", shape, block)

    assert torch.equal(part, block.of(whole))
    assert part.is_contiguous()


def test_thread_count_does_not_matter():
    threads = torch.get_num_threads()
    whole = sample(1, "p", (700, 999))
    try:
        torch.set_num_threads(threads + 1)
        again = sample(1, "p", (700, 999))
    finally:
        torch.set_num_threads(threads)

    assert torch.equal(again, whole)


def test_global_generator_is_left_alone():
    state = torch.get_rng_state()

    sample(1, "p", (10, 10))

    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("error", [ImportError, RuntimeError, OSError, torch.OutOfMemoryError])
def test_a_kernel_that_fails_leaves_the_plain_version_but_a_full_gpu_does_not(error, monkeypatch):
    pytest.importorskip("triton", reason="no Triton for this platform")
    monkeypatch.setattr(portable, "_checked_kernel", Mock(side_effect=error))
    is_full = error is torch.OutOfMemoryError
    with pytest.raises(error) if is_full else nullcontext():
        assert find_kernel.__wrapped__(torch.device("cuda:0")) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(1000, 999), (1000, 1000), (70_000, 200)])
@pytest.mark.parametrize("columns", [None, (3, 150), (64, 192)])
def test_cuda_gives_the_same_bytes(shape, columns):
    block = Block((1, 999), columns)

    noise = SCHEME.sample(
        7, "p", shape, dtype=torch.bfloat16, device=torch.device("cuda"), block=block
    )
    assert find_kernel(noise.device) is not None

    assert torch.equal(
        noise.cpu().view(torch.int32), sample(7, "p", shape, block).view(torch.int32)
    )


def test_magnitudes_are_the_nearest_multiples_of_the_quantiles():
    """Compare with erf, which shares no code with the inverse in the table."""
    for index, magnitude in enumerate(magnitudes()):
        value = magnitude * STEP
        mass = 0.5 * (1 + erf(value / sqrt(2)))
        density = exp(-value * value / 2) / sqrt(2 * pi)
        half_step = density * STEP / 2 * exp(value * STEP)
        assert abs(mass - (0.5 + (index + 0.5) / 65536)) <= half_step + 1e-15


def test_exact_moments_of_the_table():
    table = gaussian_table(torch.device("cpu")).double()

    assert float(table.sum()) == 0
    assert float(table.square().mean()) == pytest.approx(1, abs=3e-5)
    assert float(table.pow(4).mean()) == pytest.approx(3, abs=2e-3)
    assert float(table.max()) == 35430 * STEP


def test_a_deviating_library_is_an_error(monkeypatch):
    quantile = NormalDist.inv_cdf
    monkeypatch.setattr(NormalDist, "inv_cdf", lambda self, p: quantile(self, p) * (1 + 1e-7))

    with pytest.raises(IncompatibleError, match="quantile table"):
        magnitudes.__wrapped__()


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_answers_of_random123(counter, key, expected):
    c0, c1, c2, c3 = (torch.tensor([int(word, 16)]) for word in counter.split())
    k0, k1 = (int(word, 16) for word in key.split())

    words = philox4x32((c0, c1, c2, c3), (k0, k1))

    assert [f"{int(word):08x}" for word in words] == expected.split()
