"""vLLM holds the same candidates as transformers, and gives the same answers.

Against its CPU build, or on a GPU: the traps are those that vLLM has laid for others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from math import prod

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from vllm.engine.arg_utils import EngineArgs

from modnorm.baselines.es import es_step
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm import workers
from modnorm.engines.vllm.calls import Value
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.shards import shard_views
from modnorm.engines.vllm.start import _require_settings, vllm_failures
from modnorm.engines.vllm.steps import Steps
from modnorm.errors import (
    CancelledError,
    CandidateError,
    DoesNotFitError,
    EngineError,
    IncompatibleError,
    InvalidInputError,
    PreconditionError,
)
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import build_scale_map
from modnorm.spec import Masses

LIMITS = GenerationLimits(32)
Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]
Pair = tuple[VllmEngine, TransformersEngine]


def isotropic(checkpoint: Checkpoint) -> ScaleMap:
    return build_scale_map(
        "randopt",
        config=checkpoint.config,
        model_digest=checkpoint.digest,
        masses=Masses(),
        weights=None,
        sensitivities=None,
    )


def texts(engine: VllmEngine | TransformersEngine, prompts: Prompts) -> dict[int, str]:
    with closing(engine.generate(prompts, LIMITS)) as completions:
        return {done.index: done.text for done in completions}


def model_of(engine: VllmEngine) -> torch.nn.Module:
    """Return vLLM's own model, which lives in this process."""
    model: torch.nn.Module = engine._engine.model_executor.driver_worker.worker.get_model()  # type: ignore[attr-defined]  # inside
    return model


@pytest.fixture(scope="module")
def long_prompts(prompts: Prompts) -> Prompts:
    """Prompts of several cache blocks: shorter ones never meet a prefix cache."""
    return [[*prompts[4], *prompts[2], *prompts[3]] * 2, *prompts]


@pytest.fixture(scope="module")
def pair(float32: Checkpoint) -> Iterator[Pair]:
    ours = VllmEngine(float32, EngineSettings(max_model_len=512, max_num_seqs=16))
    theirs = TransformersEngine(float32)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture(scope="module")
def engine(pair: Pair) -> VllmEngine:
    return pair[0]


@pytest.fixture(scope="module")
def scale_map(float32: Checkpoint) -> ScaleMap:
    return isotropic(float32)


def test_greedy_answers_are_those_of_transformers(
    pair: Pair,
    scale_map: ScaleMap,
    long_prompts: Prompts,
    draw: Draw,
) -> None:
    """In float32: of the base, of candidates between them, of the base again."""
    ours, theirs = pair
    base = texts(ours, long_prompts)
    assert base == texts(theirs, long_prompts)
    for seed in (1, 2):
        descriptor = draw(scale_map, seed, radius=0.02)
        with ours.candidate(descriptor, scale_map), theirs.candidate(descriptor, scale_map):
            found = texts(ours, long_prompts)
            assert found == texts(theirs, long_prompts)
            assert found != base
    assert texts(ours, long_prompts) == base


def test_every_tensor_takes_part(pair: Pair, float32: Checkpoint, prompts: Prompts) -> None:
    """No weight is kept a second time where noise does not reach it."""
    ours, theirs = pair
    whole = isotropic(float32)
    for part in ("embed_tokens", "qkv_proj.weight", "qkv_proj.bias", "o_proj", "mlp", "norm"):
        rows = tuple(
            row if part in row.name else replace(row, base_scale=None, scale=None)
            for row in whole.tensors
        )
        scale_map = replace(whole, tensors=rows)
        descriptor = Descriptor("portable-v1", 3, scale_map.method, 0.2, scale_map.digest)
        with ours.candidate(descriptor, scale_map), theirs.candidate(descriptor, scale_map):
            assert texts(ours, prompts) == texts(theirs, prompts), part
            assert texts(ours, prompts) != {}, part


def test_weights_that_are_elsewhere_are_refused(engine: VllmEngine) -> None:
    """As the CPU build does to linear weights unless it is kept from it."""
    model = model_of(engine)
    layer = model.get_submodule("model.layers.1.mlp.down_proj")
    kept = layer.get_parameter("weight")
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)
    with pytest.raises(IncompatibleError, match="is empty"):
        shard_views(engine.layout, model, torch.float32)
    layer.weight = torch.nn.Parameter(kept.T.contiguous().T, requires_grad=False)
    with pytest.raises(IncompatibleError, match="laid"):
        shard_views(engine.layout, model, torch.float32)
    layer.weight = kept
    assert shard_views(engine.layout, model, torch.float32)


def test_layers_that_are_not_known_are_refused(
    engine: VllmEngine,
) -> None:
    model = model_of(engine)
    layer = model.get_submodule("model.layers.0.mlp.gate_up_proj")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer, "quant_method", object())
        with pytest.raises(IncompatibleError, match="kept by object"):
            shard_views(engine.layout, model, torch.float32)
    model.extra = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    with pytest.raises(IncompatibleError, match="extra belongs to no physical tensor"):
        shard_views(engine.layout, model, torch.float32)
    del model.extra
    with pytest.raises(IncompatibleError, match=r"float32 in vLLM"):
        shard_views(engine.layout, model, torch.bfloat16)


def test_tied_weights_are_one_tensor_and_padding_is_none(
    engine: VllmEngine,
) -> None:
    views = shard_views(engine.layout, model_of(engine), torch.float32)
    held = sum(view.storage.numel() for parts in views.values() for view in parts)

    assert held == sum(prod(tensor.shape) for tensor in engine.layout)
    assert all(len(parts) == 1 for parts in views.values())


def test_prefix_caching_is_refused(float32: Checkpoint) -> None:
    arguments = {"model": str(float32.directory), "skip_tokenizer_init": True}
    on = EngineArgs(**arguments, enable_prefix_caching=True).create_engine_config()
    off = EngineArgs(**arguments, enable_prefix_caching=False).create_engine_config()

    with pytest.raises(IncompatibleError, match="enable_prefix_caching"):
        _require_settings(on)
    _require_settings(off)


def test_logits_that_are_not_finite_are_no_answer(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
) -> None:
    """And what they leave in the cache is none of the next candidate's business."""
    before = texts(engine, prompts)
    with (
        engine.candidate(draw(scale_map, 1, radius=1e30), scale_map),
        pytest.raises(CandidateError, match="not finite"),
    ):
        texts(engine, prompts)
    with (
        pytest.raises(CandidateError, match="coefficient"),
        engine.candidate(draw(scale_map, 1, radius=1e300), scale_map),
    ):
        pass
    assert texts(engine, prompts) == before


def test_logits_that_are_not_finite_are_noticed_on_the_way(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the second look: the first begins to copy what the second sees."""
    monkeypatch.setattr("modnorm.engines.vllm.engine.LOOK_EVERY", 2)
    steps: list[None] = []
    before = texts(engine, prompts)
    with (
        engine.candidate(draw(scale_map, 1, radius=1e30), scale_map),
        pytest.raises(CandidateError, match="not finite"),
        closing(
            engine.generate(prompts, GenerationLimits(400), poll=lambda: steps.append(None))
        ) as completions,
    ):
        list(completions)
    assert len(steps) == 4
    assert texts(engine, prompts) == before


def test_answers_are_those_of_vllms_own_steps(
    engine: VllmEngine,
    long_prompts: Prompts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which are taken where a version of vLLM does not offer the halves of one."""
    assert engine._steps._halves is not None
    found = list(engine.generate(long_prompts, LIMITS))
    monkeypatch.setattr(engine, "_steps", Steps(engine._engine, whole=True))
    assert list(engine.generate(long_prompts, LIMITS)) == found


def test_what_a_faulty_base_leaves_in_the_cache_is_none_of_a_candidates_business(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
) -> None:
    """The base answers, too: to be compared across workers."""
    candidate = draw(scale_map, 1)
    with engine.candidate(candidate, scale_map):
        expected = texts(engine, prompts)
    weight = model_of(engine).get_parameter("model.layers.0.input_layernorm.weight").data
    kept = weight[0].clone()
    weight[0] = float("nan")
    with pytest.raises(CandidateError, match="not finite"):
        texts(engine, prompts)
    weight[0] = kept
    with engine.candidate(candidate, scale_map):
        assert texts(engine, prompts) == expected


def test_a_candidate_that_is_not_finite_leaves_what_is_parked_as_it_was(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
) -> None:
    candidate, steps = draw(scale_map, 1), iter(range(1000))
    with engine.candidate(candidate, scale_map):
        expected = texts(engine, prompts)
    weight = model_of(engine).get_parameter("model.layers.0.input_layernorm.weight").data

    def park() -> None:
        if next(steps) == 5:
            with engine.parked(), engine.candidate(draw(scale_map, 2), scale_map):
                weight[0] = float("nan")
                with pytest.raises(CandidateError, match="not finite"):
                    texts(engine, prompts)

    with engine.candidate(candidate, scale_map):
        said = {one.index: one.text for one in engine.generate(prompts, LIMITS, poll=park)}
    assert said == expected


def test_a_candidate_that_is_not_finite_is_not_parked(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
) -> None:
    before, steps = texts(engine, prompts), iter(range(1000))
    weight = model_of(engine).get_parameter("model.layers.0.input_layernorm.weight").data

    def park() -> None:
        if next(steps) == 3:
            with engine.parked():
                pytest.fail("it was parked")

    with engine.candidate(draw(scale_map, 2), scale_map):
        weight[0] = float("nan")
        with pytest.raises(CandidateError, match="not finite"):
            list(engine.generate(prompts, LIMITS, poll=park))
    assert texts(engine, prompts) == before


def test_weights_that_something_else_changed_are_noticed(
    engine: VllmEngine,
    scale_map: ScaleMap,
    draw: Draw,
) -> None:
    weight = model_of(engine).get_parameter("model.norm.weight").data
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


def test_a_long_way_is_taken_in_stages_and_goes_on_where_it_was_broken_off(
    pair: Pair,
    float32: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(workers, "SEEDS_AT_ONCE", 2)
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


def test_only_steps_that_the_ranks_have_not_taken_are_sent(
    pair: Pair,
    float32: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pair
    steps = [es_step((seed, seed + 10), (0.0, 1.0), 0.02) for seed in range(6)]
    long = Lineage(float32.digest, "portable-v1", steps=tuple(steps))
    other = Lineage(float32.digest, "portable-v1", steps=tuple(steps[::-1]))
    call, sent = ours._workers._call, []

    def noted(method: str, *given: object) -> list[Value]:
        if method == "modnorm_rebase":
            sent.append(str(given[0]).count('"seeds"'))
        return call(method, *given)

    monkeypatch.setattr(ours._workers, "_call", noted)
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


def test_one_request_at_a_time(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
) -> None:
    with closing(engine.generate(prompts, LIMITS)) as completions:
        next(completions)
        with pytest.raises(PreconditionError), engine.candidate(draw(scale_map, 1), scale_map):
            pass
        with pytest.raises(PreconditionError):
            texts(engine, prompts)
    with engine.candidate(draw(scale_map, 1), scale_map):
        unfinished = engine.generate(prompts, LIMITS)
        next(unfinished)
    with engine.candidate(draw(scale_map, 1), scale_map):
        assert len(texts(engine, prompts)) == len(prompts)


def test_prompts_longer_than_the_engine_was_started_for_are_refused(
    engine: VllmEngine,
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        engine.generate([[5] * 500], LIMITS)
    assert caught.value.field == "engine.max_model_len"


def test_what_vllm_raises_is_told_apart() -> None:
    with pytest.raises(DoesNotFitError), vllm_failures("loading"):
        raise ValueError("No available memory for the cache blocks")
    with pytest.raises(EngineError, match="Free memory"), vllm_failures("loading"):
        raise ValueError("Free memory on device cuda:0 (1.0/80.0 GiB) on startup is less than")
    with pytest.raises(IncompatibleError), vllm_failures("loading"):
        raise ValueError("no such setting")
    with pytest.raises(EngineError, match="out of memory"), vllm_failures("loading"):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(CandidateError), vllm_failures("loading"):
        raise CandidateError("NaN")
