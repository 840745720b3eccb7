"""Drafts from the population in vLLM: fewer steps, equal answers."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.engine.arg_utils import EngineArgs

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Completion, Drafts, EngineSettings, GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.internals.drafting import (
    LONG,
    SHORT,
    draft_schedule,
    graph_sizes,
    sample_in_vocabulary,
)
from modnorm.engines.vllm.start import _require_drafts
from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

LIMITS = GenerationLimits(48)
Prompts = Sequence[Sequence[int]]
Draw = Callable[..., Descriptor]


@pytest.fixture(scope="module")
def engine(float32: Checkpoint, undrafted: list[list[Completion]]) -> Iterator[VllmEngine]:
    """An engine with drafts, in float32, where rounding decides no argmax; freed at its end."""
    drafts = EngineSettings(max_model_len=512, max_num_seqs=16, drafts=Drafts.POPULATION)
    engine = VllmEngine(float32, drafts)
    inner = weakref.ref(engine._engine)
    yield engine
    engine.close()
    assert inner() is None


@pytest.fixture(scope="module")
def undrafted(
    float32: Checkpoint, prompts: Prompts, scale_map: ScaleMap, draw: Draw
) -> list[list[Completion]]:
    """The answers of four candidates without drafts."""
    plain = VllmEngine(float32, EngineSettings(max_model_len=512, max_num_seqs=16))
    try:
        return [
            answers_of(plain, prompts, scale_map, draw(scale_map, seed))[0] for seed in range(3)
        ]
    finally:
        plain.close()


def answers_of(
    engine: VllmEngine, prompts: Prompts, scale_map: ScaleMap, descriptor: Descriptor
) -> tuple[list[Completion], int]:
    """Return a candidate's answers, and the number of steps."""
    polls: list[None] = []
    with engine.candidate(descriptor, scale_map):
        said = engine.generate(prompts, LIMITS, poll=lambda: polls.append(None))
        return sorted(said, key=lambda one: one.index), len(polls)


def test_answers_are_equal_and_take_fewer_steps(
    undrafted: list[list[Completion]],
    engine: VllmEngine,
    prompts: Prompts,
    scale_map: ScaleMap,
    draw: Draw,
) -> None:
    steps = []
    for seed, expected in enumerate(undrafted):
        answers, taken = answers_of(engine, prompts, scale_map, draw(scale_map, seed))
        assert answers == expected
        steps.append(taken)
    again, taken = answers_of(engine, prompts, scale_map, draw(scale_map, 0))
    assert again == undrafted[0]
    longest = max(answer.tokens for answer in again)
    assert taken < longest / 3
    assert max(steps[1:]) < longest


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_wrong_drafts_change_no_answer(
    undrafted: list[list[Completion]],
    engine: VllmEngine,
    prompts: Prompts,
    scale_map: ScaleMap,
    draw: Draw,
    data: st.DataObject,
) -> None:
    """The table says what no candidate said: other tokens after the same beginnings."""
    drafter = engine._engine.model_executor.driver_worker.worker.model_runner.drafter
    rows = len(prompts)
    token = st.integers(0, 1000)
    for row in range(rows):
        end = list(prompts[row][-4:])
        answer = [*end, *data.draw(st.lists(token, min_size=1, max_size=60))]
        drafter.table.add([(row, answer * data.draw(st.integers(1, 3)))])
    seed = data.draw(st.integers(0, 2))
    answers, _ = answers_of(engine, prompts, scale_map, draw(scale_map, seed))
    assert answers == undrafted[seed]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)), st.integers(0, 2))
def test_drafts_may_come_and_go_during_a_candidate(
    undrafted: list[list[Completion]],
    engine: VllmEngine,
    prompts: Prompts,
    scale_map: ScaleMap,
    draw: Draw,
    lost: set[int],
    changed: set[int],
    seed: int,
) -> None:
    """The table is emptied, or gets an answer of another prompt, between some steps."""
    table = engine._engine.model_executor.driver_worker.worker.model_runner.drafter.table
    rows, steps = range(len(prompts)), count(1)

    def disturb() -> None:
        step = next(steps)
        if step in lost:
            table.clear(rows)
        if step in changed:
            table.add([(row, [*prompts[row - 1][-9:], step, step + 1]) for row in rows])

    with engine.candidate(draw(scale_map, seed), scale_map):
        said = engine.generate(prompts, LIMITS, poll=disturb)
        assert sorted(said, key=lambda one: one.index) == undrafted[seed]


def test_a_plug_in_that_changes_drafts_is_refused(float32: Checkpoint) -> None:
    arguments = {"model": str(float32.directory), "skip_tokenizer_init": True}
    config = EngineArgs(**arguments).create_engine_config()
    _require_drafts(config, Drafts.NONE)
    with pytest.raises(IncompatibleError, match="speculative_config"):
        _require_drafts(config, Drafts.POPULATION)


def test_tokens_outside_the_vocabulary_become_tokens_of_it() -> None:
    chosen = SimpleNamespace(sampled_token_ids=torch.tensor([[3, 9, 152_000], [-7, 10, 0]]))
    counts = (torch.tensor([3, 1]), torch.tensor([0, 2]))
    runner = SimpleNamespace(vocab_size=10, sample=lambda *_: (chosen, *counts))
    sample_in_vocabulary(runner)
    sampled, *others = runner.sample(None, None, None)
    assert sampled.sampled_token_ids.tolist() == [[3, 9, 9], [0, 9, 0]]
    assert others == list(counts)


@pytest.mark.parametrize(
    ("parameters", "schedule"),
    [
        (6_000_000, ((1, 512, LONG), (513, 4096, SHORT))),
        (105_000_000, ((1, 512, LONG), (513, 4096, SHORT))),
        (1_540_000_000, ((1, 64, LONG), (65, 4096, SHORT))),
        (700_000_000_000, ((1, 4096, SHORT),)),
    ],
)
def test_larger_models_have_shorter_drafts(
    parameters: int, schedule: tuple[tuple[int, int, int], ...]
) -> None:
    assert draft_schedule(parameters) == schedule


@given(st.integers(10**6, 10**12), st.integers(1, 4096))
def test_graphs_cover_every_step_of_decoding(parameters: int, sequences: int) -> None:
    schedule = draft_schedule(parameters)
    sizes = graph_sizes(schedule, sequences)
    for first, last, tokens in schedule:
        most = min(last, sequences)
        assert most < first or most * (1 + tokens) <= max(sizes)
        assert all(size % (1 + tokens) == 0 for size in sizes)
