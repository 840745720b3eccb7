"""Requests cache blocks only when a sequence needs another one.

vLLM's scheduler calls the cache manager for every running sequence at every step, although a block
lasts for sixteen steps or more. That takes half of the planning time of a step.
"""

from typing import TYPE_CHECKING

from vllm import SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine

from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage, resolve

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.request import Request

_MANAGER = ".engine_core.engine_core.scheduler.kv_cache_manager"
_FULL = "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager"
_REQUEST = "vllm.v1.request:Request"
_RUNNING = "vllm.v1.request:RequestStatus.RUNNING"


def allocate_at_block_ends(manager: "KVCacheManager") -> None:
    """Skip the manager for a decoding sequence whose last block has room."""
    (blocks,) = manager.coordinator.single_type_managers
    allocate, no_blocks = manager.allocate_slots, manager.empty_kv_cache_blocks
    held, size = blocks.req_to_blocks, blocks.block_size

    def allocate_slots(
        request: "Request",
        num_new_tokens: int,
        *others: object,
        num_lookahead_tokens: int = 0,
        **named: object,
    ) -> "KVCacheBlocks | None":
        plain = not num_lookahead_tokens and not others and not named
        room = size * len(held.get(request.request_id, ()))
        if plain and request.num_computed_tokens + num_new_tokens <= room:
            return no_blocks
        return allocate(
            request, num_new_tokens, *others, num_lookahead_tokens=num_lookahead_tokens, **named
        )

    manager.allocate_slots = allocate_slots


def manager_of(engine: LLMEngine) -> "KVCacheManager":
    """Return the cache manager of an engine whose scheduler is in this process."""
    return resolve(_MANAGER, engine)


def has_plain_blocks(engine: LLMEngine) -> bool:
    """Whether all layers attend to all tokens and no sequences share blocks."""
    manager = manager_of(engine)
    managers = manager.coordinator.single_type_managers
    # A subclass may free blocks before a sequence finishes.
    full = len(managers) == 1 and type(managers[0]) is resolve(_FULL)
    return full and manager.enable_caching is False


def allocates_at_block_ends(engine: LLMEngine) -> bool:
    """A sequence in vLLM's manager gets its second block after the last token of the first."""
    manager = manager_of(engine)
    size = manager.coordinator.single_type_managers[0].block_size
    free = manager.block_pool.get_num_free_blocks
    request = resolve(_REQUEST)(
        request_id="probe",
        prompt_token_ids=[0] * (size - 1),
        sampling_params=SamplingParams(max_tokens=2),
        pooling_params=None,
    )
    request.status = resolve(_RUNNING)
    second = 2 if manager.max_model_len > size else 1
    before = free()
    try:
        manager.allocate_slots(request, size - 1)
        taken = [before - free()]
        for _ in range(2):
            request.num_computed_tokens = request.num_tokens
            request.append_output_token_ids(0)
            inside = manager.allocate_slots(request, 1)
            taken.append(before - free())
            if taken[-1] == 1 and inside is not manager.empty_kv_cache_blocks:
                return False
    finally:
        manager.free(request)
    return taken == [1, 1, second] and free() == before


BLOCK_ALLOCATION = RegisterEntry(
    name="block_allocation",
    purpose="Calls the cache manager at the end of a block, not at every step.",
    kind=Kind.OPTIMISATION,
    stage=Stage.ENGINE,
    vllm_names=(
        f"{_MANAGER}.allocate_slots",
        f"{_MANAGER}.coordinator.single_type_managers",
        f"{_MANAGER}.empty_kv_cache_blocks",
        f"{_MANAGER}.enable_caching",
        _FULL,
        _REQUEST,
        _RUNNING,
    ),
    otherwise="vLLM calls it for every sequence at every step",
    removable_when="vLLM's scheduler does so itself",
    self_test=allocates_at_block_ends,
    applies=has_plain_blocks,
)
