"""The storage of weights in vLLM, and changes to it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)


from modnorm.baselines.updates import es_step
from modnorm.checkpoint.families import Part
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm import rank_group
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.internals.layers import shard_views
from modnorm.engines.vllm.serialization import Value
from modnorm.errors import CancelledError, EngineError, IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage

Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]
Pair = tuple[VllmEngine, TransformersEngine]
Answers = Callable[..., dict[int, str]]


def test_every_tensor_takes_part(
    pair: Pair, scale_map: ScaleMap, prompts: Prompts, answers: Answers
) -> None:
    """No weight has a second copy without noise."""
    ours, theirs = pair
    base = answers(ours, prompts)
    for part in ("embed_tokens", "qkv_proj.weight", "qkv_proj.bias", "o_proj", "mlp", "norm"):
        rows = tuple(
            row if part in row.name else replace(row, base_scale=None, scale=None)
            for row in scale_map.tensors
        )
        alone = replace(scale_map, tensors=rows)
        descriptor = Descriptor("portable-v1", 3, alone.method, 0.2, alone.digest)
        with ours.candidate(descriptor, alone), theirs.candidate(descriptor, alone):
            found = answers(ours, prompts)
            assert found == answers(theirs, prompts), part
            assert found != base, part


def test_weights_outside_their_parameter_are_refused(
    engine: VllmEngine, model: torch.nn.Module
) -> None:
    """The unchanged CPU build moves linear weights in this way."""
    layer = model.get_submodule("model.layers.1.mlp.down_proj")
    kept = layer.get_parameter("weight")
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
    with pytest.raises(IncompatibleError, match="is empty"):
        shard_views(engine.layout, model, torch.float32)
    layer.weight = torch.nn.Parameter(kept.T.contiguous().T, requires_grad=False)
    with pytest.raises(IncompatibleError, match="memory order"):
        shard_views(engine.layout, model, torch.float32)
    layer.weight = kept
    assert shard_views(engine.layout, model, torch.float32)


def test_a_tensor_that_the_checkpoint_fuses_is_refused(
    engine: VllmEngine, model: torch.nn.Module
) -> None:
    fused = [
        replace(tensor, parts=(Part(tensor.name, tensor.shape[0]),)) for tensor in engine.layout
    ]
    with pytest.raises(IncompatibleError, match=r"qkv_proj\.weight is fused in the checkpoint"):
        shard_views(tuple(fused), model, torch.float32)


def test_unknown_layers_are_refused(engine: VllmEngine, model: torch.nn.Module) -> None:
    layer = model.get_submodule("model.layers.0.mlp.gate_up_proj")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer, "quant_method", object())
        with pytest.raises(IncompatibleError, match="stored by object"):
            shard_views(engine.layout, model, torch.float32)
    model.extra = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    with pytest.raises(IncompatibleError, match="extra belongs to no physical tensor"):
        shard_views(engine.layout, model, torch.float32)
    del model.extra
    with pytest.raises(IncompatibleError, match=r"float32 in vLLM"):
        shard_views(engine.layout, model, torch.bfloat16)


def test_tied_weights_are_one_tensor_and_padding_is_none(
    engine: VllmEngine, model: torch.nn.Module
) -> None:
    views = shard_views(engine.layout, model, torch.float32)
    held = sum(view.storage.numel() for parts in views.values() for view in parts)

    assert held == sum(prod(tensor.shape) for tensor in engine.layout)
    assert all(len(parts) == 1 for parts in views.values())


def test_weights_that_something_else_changed_are_noticed(
    engine: VllmEngine, scale_map: ScaleMap, draw: Draw, model: torch.nn.Module
) -> None:
    weight = model.get_parameter("model.norm.weight").data
    kept = weight[0].clone()
    weight[0] += 1
    for _ in range(2):
        with (
            pytest.raises(EngineError, match="not the base"),
            engine.candidate(draw(scale_map, 1), scale_map),
        ):
            pass
        assert weight[0] == kept + 1
    weight[0] = kept
    with engine.candidate(draw(scale_map, 1), scale_map):
        pass


def test_a_long_lineage_is_applied_in_stages_and_resumed(
    pair: Pair, float32: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(rank_group, "SEEDS_PER_CALL", 2)
    steps = [es_step((seed, seed + 10), (0.0, 1.0), 0.02) for seed in range(3)]
    lineage = Lineage(float32.digest, "portable-v1", steps=tuple(steps))
    polls: list[str] = []

    def break_off() -> None:
        polls.append(ours.weights_sha256())
        if len(polls) == 2:
            raise CancelledError("not wanted")

    base = ours.weights_sha256()
    with pytest.raises(CancelledError):
        ours.rebase(lineage, poll=break_off)
    theirs.rebase(lineage.until(1))
    assert polls == [base, theirs.weights_sha256()]
    ours.rebase(lineage, poll=break_off)
    theirs.rebase(lineage)
    assert polls[2] == polls[1]
    assert len(polls) == 4
    assert ours.weights_sha256() == theirs.weights_sha256()
    for engine in pair:
        engine.rebase(None)
        assert engine.weights_sha256() == base


def test_only_missing_steps_are_sent(
    pair: Pair, float32: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    steps = [es_step((seed, seed + 10), (0.0, 1.0), 0.02) for seed in range(6)]
    long = Lineage(float32.digest, "portable-v1", steps=tuple(steps))
    other = Lineage(float32.digest, "portable-v1", steps=tuple(steps[::-1]))
    call, sent = ours._weights._call, []

    def noted(method: str, *given: object) -> list[Value]:
        if method == "rebase":
            sent.append(str(given[0]).count('"seeds"'))
        return call(method, *given)

    monkeypatch.setattr(ours._weights, "_call", noted)
    for lineage in (
        long.until(3),
        long.until(4),
        long,
        other,
        other.until(2),
        None,
        long.until(1),
    ):
        ours.rebase(lineage)
        theirs.rebase(lineage)
        assert ours.weights_sha256() == theirs.weights_sha256()
    assert sent == [3, 1, 2, 6, 2, 0, 1]
    for engine in pair:
        engine.rebase(None)
