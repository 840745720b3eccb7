"""Requests of vLLM's that rest while others run, with their keys and values where they are.

vLLM schedules whatever is in its list of running requests. A request that is taken off the list
between two steps keeps its blocks of the cache and its place in the model runner; put back, it
goes on with the next token as if nothing had been between.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from vllm.v1.core.sched.interface import PauseState

from modnorm.engines.vllm.start import RunningEngine
from modnorm.engines.vllm.steps import Said, Steps
from modnorm.errors import IncompatibleError

_SCHEDULER = ("running", "waiting", "requests", "set_pause_state", "get_request_counts")
_LIMITS = ("max_num_active_reqs", "max_num_running_reqs")
"""What bounds the requests that run: the first since vLLM 0.32, where the other is the places."""


class _Pool(Protocol):
    def get_num_free_blocks(self) -> int:
        """Return the blocks that nobody has."""


class _Kind(Protocol):
    block_size: int


class _Coordinator(Protocol):
    single_type_managers: Sequence[_Kind]


class _Cache(Protocol):
    block_pool: _Pool
    coordinator: _Coordinator


class _Queue(Protocol):
    def __iter__(self) -> Iterator[object]:
        """Go through requests, in the order in which they begin."""

    def add_request(self, request: object) -> None:
        """Add a request at the end."""

    def remove_requests(self, requests: Iterable[object]) -> None:
        """Take requests out."""


class _Scheduler(Protocol):
    running: list[object]
    waiting: _Queue
    requests: dict[str, object]
    kv_cache_manager: _Cache

    def set_pause_state(self, pause_state: int) -> None:
        """Schedule nothing, or go on."""

    def get_request_counts(self) -> tuple[int, int]:
        """Return how many requests run, and how many wait."""


class _Core(Protocol):
    scheduler: _Scheduler
    batch_queue: Sequence[object] | None


@dataclass(frozen=True)
class Parked:
    """Requests that rest."""

    running: list[object]
    """As vLLM's scheduler has them, in its order."""
    waiting: list[object]
    """Requests that have not begun."""
    said: Said
    """What they have said, as `Steps` keeps it."""


class Parking:
    """Takes all requests off vLLM's schedule, and puts them back.

    Args:
        engine: vLLM, its core in this process.
        steps: Takes its steps.
        running: Sequences decoded at once.
        places: Sequences that vLLM was started for.

    Raises:
        IncompatibleError: this vLLM keeps its requests otherwise.
    """

    def __init__(self, engine: RunningEngine, steps: Steps, running: int, places: int) -> None:
        inner = getattr(engine.engine_core, "engine_core", None)
        self._core = cast("_Core", inner)
        self._steps = steps
        self._places = places
        _require_known(inner)
        scheduler = self._core.scheduler
        limit = next(name for name in _LIMITS if hasattr(scheduler, name))
        setattr(scheduler, limit, running)

    def has_room(self, tokens: Sequence[int]) -> bool:
        """Whether further requests fit beside all that there are, none of which waits to begin.

        Args:
            tokens: Most tokens of each, prompt and completion.
        """
        scheduler = self._core.scheduler
        _, waiting = scheduler.get_request_counts()
        if waiting or len(scheduler.requests) + len(tokens) > self._places:
            return False
        cache = scheduler.kv_cache_manager
        blocks = sum(
            -(-length // kind.block_size)
            for kind in cache.coordinator.single_type_managers
            for length in tokens
        )
        return blocks <= cache.block_pool.get_num_free_blocks()

    def leave(self) -> Parked:
        """Finish the steps under way, and take all requests off the schedule."""
        scheduler, ended = self._core.scheduler, []
        scheduler.set_pause_state(PauseState.PAUSED_ALL)
        while self._core.batch_queue:
            ended += self._steps.take()
        scheduler.set_pause_state(PauseState.UNPAUSED)
        running, scheduler.running = scheduler.running, []
        waiting = list(scheduler.waiting)
        scheduler.waiting.remove_requests(waiting)
        return Parked(running, waiting, self._steps.leave(ended))

    def come_back(self, parked: Parked) -> None:
        """Put requests back, in their order."""
        self._core.scheduler.running = parked.running
        for request in parked.waiting:
            self._core.scheduler.waiting.add_request(request)
        self._steps.come_back(parked.said)

    def drop(self, parked: Parked) -> None:
        """Let go of requests that do not go on, whoever runs meanwhile; they are aborted next."""
        scheduler = self._core.scheduler
        scheduler.running += parked.running
        for request in parked.waiting:
            scheduler.waiting.add_request(request)


def _require_known(core: object) -> None:
    scheduler = getattr(core, "scheduler", None)
    cache = getattr(scheduler, "kv_cache_manager", None)
    known = (
        hasattr(core, "batch_queue")
        and all(hasattr(scheduler, name) for name in _SCHEDULER)
        and any(hasattr(scheduler, name) for name in _LIMITS)
        and hasattr(cache, "block_pool")
        and hasattr(getattr(cache, "coordinator", None), "single_type_managers")
    )
    if not known:
        raise IncompatibleError(
            "this vLLM keeps its requests in a way that is not known",
            field="engine.name",
            remedy="use a version of vLLM that this package was tested with",
        )
