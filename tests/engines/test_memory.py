"""An engine's memory: the model, its pristine copy, and nothing that grows."""

import gc
import weakref
from contextlib import closing

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.perturbation.methods import build_scale_map

BUFFERS = 64 * 1024
"""Rotary frequencies and the like."""
CHUNKS = 8 * 2**20
"""A chunk of noise in the making and a chunk of weights in fp32, on one thread."""


def live_storages():
    gc.collect()
    return {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in gc.get_objects()
        if type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.device.type == "cpu"
    }


def live_bytes():
    return sum(live_storages().values())


class Peak(TorchDispatchMode):
    """Peak bytes of tensors created inside the context, and the size of the largest one."""

    def __init__(self):
        super().__init__()
        self._kept = live_storages()
        self._made = []
        self.bytes = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [weakref.ref(leaf) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self._made = [ref for ref in (*self._made, *made) if ref() is not None]
        alive = [tensor.untyped_storage() for ref in self._made if (tensor := ref()) is not None]
        sizes = {s.data_ptr(): s.nbytes() for s in alive if s.data_ptr() not in self._kept}
        self.bytes = max(self.bytes, sum(sizes.values()))
        self.largest = max([self.largest, *sizes.values()])
        return out


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def held(checkpoint):
    before = live_bytes()
    engine = TransformersEngine(checkpoint)
    yield engine, lambda: live_bytes() - before
    engine.close()


def test_the_engine_holds_its_weights_in_float32_and_the_base_in_the_dtype_of_the_model(
    held, checkpoint, make_scale_map, draw, prompts
):
    engine, grown = held
    dtype = CheckpointWeights(checkpoint).dtype
    numbers = sum(tensor.numel for tensor in engine.layout)
    copies = numbers * (dtype.itemsize + torch.float32.itemsize)
    scale_map = make_scale_map("randopt")
    limits = GenerationLimits(max_tokens=4)

    assert copies <= grown() <= copies + BUFFERS
    with engine.candidate(draw(scale_map, 1), scale_map):
        list(engine.generate(prompts[:2], limits))
        table = 65_536 * 4  # of the noise scheme, kept for all engines
        assert grown() <= copies + BUFFERS + table
    assert grown() <= copies + BUFFERS + table


def test_a_closed_engine_frees_its_memory(bundled):
    before = live_bytes()
    TransformersEngine(bundled).close()
    assert live_bytes() <= before


def test_a_candidate_needs_memory_for_one_noise_tensor(make_llama, draw, one_thread):
    """Two tensors here are larger than all chunks together, so that keeping both would show."""
    checkpoint = make_llama(vocab_size=8192, hidden_size=512, num_hidden_layers=1)
    scale_map = build_scale_map(
        "modular_norm", checkpoint, sensitivities=[{"attention_module": 2.0, "mlp_module": 3.0}]
    )
    with closing(TransformersEngine(checkpoint)) as engine:
        sizes = sorted(tensor.numel * 4 for tensor in engine.layout)
        assert CHUNKS < sizes[-2] == sizes[-1]
        with Peak() as peak, engine.candidate(draw(scale_map, 1), scale_map):
            pass

    assert peak.largest == sizes[-1]
    assert sizes[-1] <= peak.bytes <= sizes[-1] + CHUNKS
