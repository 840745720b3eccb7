"""A scheduler that asks for memory only when a sequence needs more of it: what would that save?

vLLM asks its cache manager for every running sequence at every step, though a block lasts a
sequence for many. Nothing but a measurement uses this: it goes past vLLM's interfaces.
"""

from collections.abc import Callable, Sequence
from typing import Protocol


class _Request(Protocol):
    request_id: str
    num_computed_tokens: int


class _Manager(Protocol):
    block_size: int
    req_to_blocks: dict[str, Sequence[object]]


class _Coordinator(Protocol):
    single_type_managers: Sequence[_Manager]


class CacheManager(Protocol):
    """What is used of vLLM's manager of keys and values."""

    allocate_slots: Callable[..., object | None]
    enable_caching: bool
    empty_kv_cache_blocks: object
    coordinator: _Coordinator


def spare_asking(manager: CacheManager) -> None:
    """Let it answer at once that a decoding sequence whose last block has room needs nothing.

    Raises:
        SystemExit: sequences have several kinds of blocks, or blocks that others use.
    """
    kinds = manager.coordinator.single_type_managers
    if len(kinds) != 1 or type(kinds[0]).__name__ != "FullAttentionManager":
        raise SystemExit("@slots is only for models with full attention in every layer")
    if manager.enable_caching:
        raise SystemExit("@slots is only for a cache without prefixes")
    ask, held, size = manager.allocate_slots, kinds[0].req_to_blocks, kinds[0].block_size
    nothing = manager.empty_kv_cache_blocks

    def allocate_slots(
        request: _Request,
        tokens: int,
        *more: object,
        num_lookahead_tokens: int = 0,
        **named: object,
    ) -> object | None:
        plain = tokens == 1 and not num_lookahead_tokens and not more and not named
        if plain and request.num_computed_tokens < size * len(held.get(request.request_id, ())):
            return nothing
        return ask(request, tokens, *more, num_lookahead_tokens=num_lookahead_tokens, **named)

    manager.allocate_slots = allocate_slots
