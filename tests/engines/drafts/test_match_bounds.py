"""The kernels of drafts access their tensors only, whatever they contain."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="no Triton for this platform")

from triton.runtime import interpreter

from modnorm.engines.drafts.match_kernels import MatchKernels
from modnorm.engines.drafts.matching import AnswerTable

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="only the interpreter shows addresses"
)

SLOTS, WIDTH, PROMPTS, SOURCES, TOKENS = 5, 300, 3, 3, 900
Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


class Accesses:
    """First and last byte of every element that kernels load or store."""

    def __init__(self) -> None:
        self._elements: list[tuple[Bytes, int]] = []

    def add(self, addresses: Bytes, mask: Bytes, size: int) -> None:
        """Add the accessed elements of one instruction."""
        self._elements.append((addresses[mask.astype(bool)], size))

    def outside(self, tensors: list[torch.Tensor]) -> int:
        """Return the number of accesses outside all tensors."""
        inside = [
            sum(
                (one.data_ptr() <= addresses)
                & (addresses + size <= one.data_ptr() + one.numel() * one.element_size())
                for one in tensors
            )
            for addresses, size in self._elements
        ]
        assert inside
        return sum(int((np.asarray(one) == 0).sum()) for one in inside)


@pytest.fixture(scope="module")
def accesses() -> Iterator[Accesses]:
    """Record what the interpreter loads and stores."""
    recorded, real = Accesses(), interpreter._interpreter

    class Recording:
        def load(self, addresses: Bytes, mask: Bytes, other: Bytes, dtype: type) -> object:
            recorded.add(addresses, mask, np.dtype(dtype).itemsize)
            return real.load(addresses, mask, other, dtype)

        def store(self, addresses: Bytes, values: Bytes, mask: Bytes) -> object:
            recorded.add(addresses, mask, values.dtype.itemsize)
            return real.store(addresses, values, mask)

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_interpreter", Recording())
        yield recorded


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), count=st.sampled_from([3, 7]), requests=st.integers(1, SLOTS))
def test_kernels_stay_inside_their_tensors(
    accesses: Accesses, seed: int, count: int, requests: int
) -> None:
    draw = np.random.default_rng(seed)
    accesses._elements.clear()
    table = AnswerTable(torch.device("cpu"), prompts=PROMPTS, sources=SOURCES, tokens=TOKENS)
    for _ in range(draw.integers(0, 12)):
        answer = draw.integers(0, 3, draw.choice([1, 16, 255, 256, 299]))
        table.add([(int(draw.integers(PROMPTS)), answer)])
    kernels = MatchKernels(table, sequences=SLOTS, count=count)
    # What a slot's last owner followed, and further sources than there are.
    followed = draw.integers([-1, -(2**20)], [SOURCES + 2, 2**20], (SLOTS, 2))
    kernels._followed.copy_(torch.from_numpy(followed))
    texts = torch.from_numpy(draw.integers(0, 3, (SLOTS, WIDTH)).astype(np.int32))
    lengths = torch.from_numpy(draw.choice([0, 1, 15, 257, WIDTH], SLOTS).astype(np.int32))
    prompts = torch.from_numpy(draw.integers(0, WIDTH, SLOTS).astype(np.int32))
    rows = torch.from_numpy(draw.integers(-1, PROMPTS, requests).astype(np.int32))
    slots = torch.from_numpy(draw.permutation(SLOTS)[:requests].astype(np.int32))
    drafts = kernels.propose(rows, slots, texts, lengths, prompts)
    assert set(drafts.unique().tolist()) <= {-1, 0, 1, 2}
    tensors = [
        table.tokens, table.spans, texts, lengths, prompts, rows, slots,
        kernels._suffixes, kernels._best, kernels._followed, kernels.drafts,
    ]  # fmt: skip
    assert accesses.outside(tensors) == 0
