"""The memory that `apply` allocates, as torch's dispatcher sees it."""

import weakref
from math import prod

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from modnorm.geometry.scale_map import Norm
from modnorm.perturbation import held_tensor as writing

MIB = 2**20
LARGEST = (4096, 1024)
NOISE = prod(LARGEST) * 4
CHUNKS = 8 * MIB
"""Bytes of a chunk of noise during generation and a chunk of fp32 weights, on one thread."""
ROWS = (
    ("embed", LARGEST, Norm.MAX_ROW, 2.0),
    ("linear", (1024, 2048), Norm.SPECTRAL, 3.0),
    ("gain", (1024,), Norm.MAX_ABS, 5.0),
)


class Allocations(TorchDispatchMode):
    """Follows the bytes of live tensors that were made inside the context."""

    def __init__(self, before):
        super().__init__()
        self._before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self._live: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}
        self.peak = 0
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        return out

    def _note(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._before:
            return
        self.largest = max(self.largest, storage.nbytes())
        self._live[id(tensor)] = (weakref.ref(tensor), storage.data_ptr(), storage.nbytes())
        self._live = {key: entry for key, entry in self._live.items() if entry[0]() is not None}
        places = {place: size for _, place, size in self._live.values()}
        self.peak = max(self.peak, sum(places.values()))


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def watch(model, descriptor):
    views = model.views()
    weights = model.hold(views)
    kept = [part.storage for parts in views.values() for part in parts]
    pristine = [copy for held in weights._held.values() for copy in held._pristine]
    with Allocations([*kept, *pristine]) as seen:
        resolved = weights.apply(descriptor, model.scale_map)
        weights.restore()
    return resolved, seen


def test_at_most_one_noise_tensor(model_of, one_thread):
    model = model_of("modular_norm", ROWS)

    _, seen = watch(model, model.descriptor())

    assert seen.largest == NOISE
    assert NOISE < seen.peak <= NOISE + CHUNKS


def test_pristine_copy_is_the_only_one(model_of):
    model = model_of("modular_norm", ROWS)
    views = model.views()
    kept = [part.storage for parts in views.values() for part in parts]

    with Allocations(kept) as seen:
        weights = model.hold(views)
    assert weights.is_pristine()

    copied = sum(storage.nbytes for storage in kept)
    assert copied <= seen.peak <= copied + CHUNKS


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
