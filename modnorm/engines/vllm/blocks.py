"""Blocks of vLLM's cache, asked for when a sequence needs one more.

vLLM's scheduler asks the cache's manager for every running sequence at every step, though a block
lasts for sixteen of them and more. That is half of what planning a step takes, which the GPU waits
for where the processor is slow or busy otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from modnorm.engines.vllm.start import RunningEngine

_FULL = "FullAttentionManager"
"""Keeps all blocks of a sequence until it ends; others free some on the way."""


class _Request(Protocol):
    request_id: str
    num_computed_tokens: int


class _Kind(Protocol):
    block_size: int
    req_to_blocks: Mapping[str, Sequence[object]]


class _Manager(Protocol):
    allocate_slots: Callable[..., object | None]
    empty_kv_cache_blocks: object


def ask_at_block_ends(engine: RunningEngine) -> bool:
    """Let the manager say at once that a sequence whose last block has room needs nothing.

    Only where that is all that it would find out: every layer sees all tokens, and no blocks are
    shared. Elsewhere, and where this vLLM keeps its blocks otherwise, nothing changes.

    Returns:
        Whether it does so now.
    """
    core = getattr(engine.engine_core, "engine_core", None)
    found = getattr(getattr(core, "scheduler", None), "kv_cache_manager", None)
    kind = _only_kind(found)
    if kind is None:
        return False
    manager = cast("_Manager", found)
    ask, nothing = manager.allocate_slots, manager.empty_kv_cache_blocks
    held, size = kind.req_to_blocks, kind.block_size

    def allocate_slots(
        request: _Request,
        num_new_tokens: int,
        *more: object,
        num_lookahead_tokens: int = 0,
        **named: object,
    ) -> object | None:
        plain = num_new_tokens == 1 and not num_lookahead_tokens and not more and not named
        if plain and request.num_computed_tokens < size * len(held.get(request.request_id, ())):
            return nothing
        return ask(
            request, num_new_tokens, *more, num_lookahead_tokens=num_lookahead_tokens, **named
        )

    manager.allocate_slots = allocate_slots
    return True


def _only_kind(manager: object) -> _Kind | None:
    """Return what keeps the blocks of all layers, where it is known and the only one."""
    coordinator = getattr(manager, "coordinator", None)
    kinds: Sequence[object] = getattr(coordinator, "single_type_managers", ())
    known = (
        len(kinds) == 1
        and type(kinds[0]).__name__ == _FULL
        and all(hasattr(kinds[0], name) for name in ("block_size", "req_to_blocks"))
        and all(hasattr(manager, name) for name in ("allocate_slots", "empty_kv_cache_blocks"))
        and getattr(manager, "enable_caching", True) is False
    )
    return cast("_Kind", kinds[0]) if known else None
