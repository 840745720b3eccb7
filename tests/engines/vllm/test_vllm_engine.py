"""vLLM has the same candidates as transformers and gives the same answers.

The tests run on vLLM's CPU build or on a GPU.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from vllm.engine.arg_utils import EngineArgs

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.start import _require_settings, start_vllm, vllm_failures
from modnorm.errors import (
    CandidateError,
    DoesNotFitError,
    EngineError,
    IncompatibleError,
    InvalidInputError,
    PreconditionError,
)
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

LIMITS = GenerationLimits(32)
Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]
Pair = tuple[VllmEngine, TransformersEngine]
Answers = Callable[..., dict[int, str]]


def test_greedy_answers_are_those_of_transformers(
    pair: Pair, scale_map: ScaleMap, long_prompts: Prompts, draw: Draw, answers: Answers
) -> None:
    """In float32, for the base, for candidates, and for the base again."""
    ours, theirs = pair
    base = answers(ours, long_prompts)
    assert base == answers(theirs, long_prompts)
    for seed in (1, 2):
        descriptor = draw(scale_map, seed, radius=0.02)
        with ours.candidate(descriptor, scale_map), theirs.candidate(descriptor, scale_map):
            found = answers(ours, long_prompts)
            assert found == answers(theirs, long_prompts)
            assert found != base
    assert answers(ours, long_prompts) == base


def test_prefix_caching_is_refused(float32: Checkpoint) -> None:
    arguments = {"model": str(float32.directory), "skip_tokenizer_init": True}
    on = EngineArgs(**arguments, enable_prefix_caching=True).create_engine_config()
    off = EngineArgs(**arguments, enable_prefix_caching=False).create_engine_config()

    with pytest.raises(IncompatibleError, match="enable_prefix_caching"):
        _require_settings(on)
    _require_settings(off)


def test_a_vllm_without_a_needed_setting_is_refused(
    float32: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, config = CheckpointWeights(float32), SimpleNamespace(speculative_config=None)
    monkeypatch.setattr(EngineArgs, "create_engine_config", lambda *_: config)
    with pytest.raises(IncompatibleError, match=r"it has no \.cache_config"):
        start_vllm(float32, stored.layout, stored.dtype, EngineSettings(max_model_len=128))


def test_nan_logits_are_noticed_during_generation(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
    monkeypatch: pytest.MonkeyPatch,
    answers: Answers,
) -> None:
    """At the third check: the first starts the copy, the second reads it, the third reports."""
    monkeypatch.setattr("modnorm.engines.vllm.engine.CHECK_EVERY", 2)
    steps: list[None] = []
    before = answers(engine, prompts)
    with (
        engine.candidate(draw(scale_map, 1, radius=1e30), scale_map),
        pytest.raises(CandidateError, match="not finite"),
        closing(
            engine.generate(prompts, GenerationLimits(400), poll=lambda: steps.append(None))
        ) as completions,
    ):
        list(completions)
    assert len(steps) == 6
    assert answers(engine, prompts) == before


@pytest.mark.parametrize("tokens", [1, 2, 32])
def test_prompts_queued_during_a_step_are_answered_alike(
    engine: VllmEngine, long_prompts: Prompts, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    def said() -> dict[int, str]:
        ended = engine.generate(long_prompts, GenerationLimits(tokens))
        return {one.index: one.text for one in ended}

    expected = said()
    for room in (1, len(long_prompts[0]), len(long_prompts[0]) + 1):
        monkeypatch.setattr("modnorm.engines.vllm.engine.FIRST_TOKENS", room)
        assert said() == expected


def test_nan_of_a_faulty_base_does_not_reach_a_candidate(
    engine: VllmEngine,
    scale_map: ScaleMap,
    prompts: Prompts,
    draw: Draw,
    model: torch.nn.Module,
    answers: Answers,
) -> None:
    """The base answers as well, for comparison across workers."""
    candidate = draw(scale_map, 1)
    with engine.candidate(candidate, scale_map):
        expected = answers(engine, prompts)
    weight = model.get_parameter("model.layers.0.input_layernorm.weight").data
    kept = weight[0].clone()
    weight[0] = float("nan")
    with pytest.raises(CandidateError, match="not finite"):
        answers(engine, prompts)
    weight[0] = kept
    with engine.candidate(candidate, scale_map):
        assert answers(engine, prompts) == expected


def test_one_request_at_a_time(
    engine: VllmEngine, scale_map: ScaleMap, prompts: Prompts, draw: Draw, answers: Answers
) -> None:
    with closing(engine.generate(prompts, LIMITS)) as completions:
        next(completions)
        with pytest.raises(PreconditionError), engine.candidate(draw(scale_map, 1), scale_map):
            pass
        with pytest.raises(PreconditionError):
            answers(engine, prompts)
    with engine.candidate(draw(scale_map, 1), scale_map):
        unfinished = engine.generate(prompts, LIMITS)
        next(unfinished)
    with engine.candidate(draw(scale_map, 1), scale_map):
        assert len(answers(engine, prompts)) == len(prompts)


def test_prompts_longer_than_the_engine_was_started_for_are_refused(engine: VllmEngine) -> None:
    with pytest.raises(InvalidInputError) as caught:
        engine.generate([[5] * 500], LIMITS)
    assert caught.value.field == "engine.max_model_len"


def test_vllms_exceptions_are_classified() -> None:
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
