"""A candidate is equal in vLLM's layout on any number of ranks, and in transformers'."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map


def modular(checkpoint: Checkpoint, rank: int | None) -> ScaleMap:
    """Scales of the modular norm without corrections: each tensor's noise is normalised."""
    return build_scale_map(
        "modular_norm",
        checkpoint,
        sensitivities=[
            {"attention_module": 1.0, "mlp_module": 1.0}
            for _ in range(int(str(checkpoint.config["num_hidden_layers"])))
        ],
        rank=rank,
    )


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["bundled", "padded"])
def test_every_layout_gives_the_same_candidate(
    bundled: Checkpoint,
    make_llama: Callable[..., Checkpoint],
    draw: Callable[..., Descriptor],
    forked_processes: Callable[[], AbstractContextManager[None]],
    name: str,
    ranks: int,
) -> None:
    if torch.cuda.is_available() and torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    checkpoint = bundled if name == "bundled" else make_llama(vocab_size=1000)
    maps = [modular(checkpoint, rank) for rank in (None, 4)]
    reference = TransformersEngine(checkpoint)
    base = reference.weights_sha256()
    expected = []
    for scale_map in maps:
        with reference.candidate(draw(scale_map, 5, radius=0.2), scale_map) as resolved:
            expected.append((resolved, reference.weights_sha256()))
    settings = EngineSettings(max_model_len=128, max_num_seqs=2, tensor_parallel_size=ranks)
    with forked_processes():
        engine = VllmEngine(checkpoint, settings)
    try:
        assert engine.environment["tensor_parallel"] == str(ranks)
        assert engine.weights_sha256() == base
        for scale_map, (candidate, digest) in zip(maps, expected, strict=True):
            with engine.candidate(draw(scale_map, 5, radius=0.2), scale_map) as resolved:
                assert resolved == candidate
                assert engine.weights_sha256() == digest
        assert engine.weights_sha256() == base
    finally:
        engine.close()
