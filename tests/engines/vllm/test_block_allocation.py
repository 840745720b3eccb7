"""Allocation at block ends, compared with vLLM's allocation at every step."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.internals.block_allocation import (
    BLOCK_ALLOCATION,
    allocate_at_block_ends,
    allocates_at_block_ends,
)
from modnorm.engines.vllm.start import Overrides

PROMPTS = [
    [*range(first, first + length)] for first, length in ((5, 1), (6, 31), (7, 32), (8, 50))
]
Plan = list[object]


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("blocks", [64, 9], ids=["room for all", "some are preempted"])
def test_steps_are_planned_as_in_vllm(
    float32: Checkpoint, as_on_gpu: Callable[[], AbstractContextManager[None]], blocks: int
) -> None:
    settings = EngineSettings(max_model_len=192, max_num_seqs=4)
    planned, asked, said = [], [], []
    for without in (frozenset(), frozenset({BLOCK_ALLOCATION.name})):
        arguments = {"block_size": 32, "num_gpu_blocks_override": blocks}
        overrides = Overrides(arguments, without=without)
        with as_on_gpu():
            engine = VllmEngine(float32, settings, overrides=overrides)
        try:
            if without:  # so that free blocks are in the same order
                assert allocates_at_block_ends(engine._engine)
            plans, asks = _recorded(engine)
            ended = engine.generate(PROMPTS, GenerationLimits(100))
            said.append({one.index: one.text for one in ended})
            planned.append(plans)
            asked.append(len(asks))
        finally:
            engine.close()
    assert planned[0] == planned[1]
    assert said[0] == said[1]
    assert any(plan[5] for plan in planned[0]) is (blocks == 9)
    assert asked[0] < asked[1] / 4


def _recorded(engine: VllmEngine) -> tuple[list[Plan], list[int]]:
    """Record the plan of each step and the sizes of allocations."""
    scheduler = engine._engine.engine_core.engine_core.scheduler
    coordinator = scheduler.kv_cache_manager.coordinator
    plans, asks = list[Plan](), list[int]()
    schedule, allocate = scheduler.schedule, coordinator.allocate_new_blocks

    def planning(*given: object, **named: object) -> object:
        plan = schedule(*given, **named)
        going_on = plan.scheduled_cached_reqs
        plans.append(
            [
                {_row(name): tokens for name, tokens in plan.num_scheduled_tokens.items()},
                {_row(new.req_id): new.block_ids for new in plan.scheduled_new_reqs},
                [_row(name) for name in going_on.req_ids],
                going_on.new_block_ids,
                going_on.num_computed_tokens,
                {_row(name) for name in plan.preempted_req_ids or ()},
                scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            ]
        )
        return plan

    def allocating(name: str, tokens: int, *more: object, **named: object) -> object:
        asks.append(tokens)
        return allocate(name, tokens, *more, **named)

    scheduler.schedule, coordinator.allocate_new_blocks = planning, allocating
    return plans, asks


def _row(name: str) -> str:
    """Return a request's name without vLLM's random suffix."""
    return name.partition("-")[0]


class FullAttentionManager:
    """In place of vLLM's."""

    block_size = 16

    def __init__(self) -> None:
        self.req_to_blocks = {"long": [object()] * 3}


@pytest.fixture
def _own_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "vllm.v1.core.single_type_kv_cache_manager.FullAttentionManager"
    monkeypatch.setattr(name, FullAttentionManager)


def _engine(*kinds: FullAttentionManager, enable_caching: bool = False) -> SimpleNamespace:
    manager = SimpleNamespace(
        coordinator=SimpleNamespace(single_type_managers=kinds),
        allocate_slots=lambda *given, **named: (given, named),
        empty_kv_cache_blocks="nothing",
        enable_caching=enable_caching,
    )
    scheduler = SimpleNamespace(kv_cache_manager=manager)
    core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler))
    return SimpleNamespace(engine_core=core, manager=manager)


@pytest.mark.usefixtures("_own_manager")
@pytest.mark.parametrize(
    ("name", "computed", "given", "asks"),
    [
        ("long", 47, {}, False),
        ("long", 48, {}, True),
        ("unknown", 0, {}, True),
        ("long", 10, {"num_lookahead_tokens": 1}, True),
        ("long", 10, {"full_sequence_must_fit": True}, True),
    ],
)
def test_only_a_decoding_sequence_with_room_skips_the_manager(
    name: str, computed: int, given: dict[str, int], *, asks: bool
) -> None:
    engine = _engine(FullAttentionManager())
    assert not BLOCK_ALLOCATION.missing_name(engine)
    assert BLOCK_ALLOCATION.is_used(engine)
    allocate_at_block_ends(engine.manager)
    request = SimpleNamespace(request_id=name, num_computed_tokens=computed)
    answer = engine.manager.allocate_slots(request, 1, **given)
    assert (answer != "nothing") is asks
    # With drafts, a step has several tokens of a sequence.
    two_fit = name == "long" and computed + 2 <= 48
    assert (engine.manager.allocate_slots(request, 2) == "nothing") is two_fit
