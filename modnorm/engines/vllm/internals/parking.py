"""Parks requests: takes them off vLLM's schedule and keeps their cache.

vLLM schedules the requests in its running list. A request that leaves the list between two steps
keeps its cache blocks and its place in the model runner. When it returns to the list, it continues
with the next token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.request import Request

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.engines.vllm.internals.stepper import Outputs, Stepper

_CORE = ".engine_core.engine_core"
_SCHEDULER = f"{_CORE}.scheduler"
_CACHE = f"{_SCHEDULER}.kv_cache_manager"
_LIMITS = ("max_num_active_reqs", "max_num_running_reqs")
"""The bound of running requests: the first name since vLLM 0.32, where the second bounds all."""


@dataclass(frozen=True)
class Parked:
    """Parked requests."""

    running: list[Request]
    """Started requests, in the order of vLLM's scheduler."""
    waiting: list[Request]
    """Requests that have not started."""
    outputs: Outputs


class RequestParking:
    """Takes all requests off vLLM's schedule and puts them back."""

    def __init__(self, engine: LLMEngine, stepper: Stepper, running: int, sequences: int) -> None:
        self._core = engine.engine_core.engine_core
        self._stepper = stepper
        self._sequences = sequences
        drafting = engine.vllm_config.speculative_config
        steps = max(1, self._core.batch_queue_size)
        self._drafts = steps * drafting.num_speculative_tokens if drafting else 0
        limit = next(name for name in _LIMITS if hasattr(self._core.scheduler, name))
        setattr(self._core.scheduler, limit, running)

    @property
    def is_empty(self) -> bool:
        """Whether vLLM has no request, parked ones included."""
        return not self._core.scheduler.requests

    def has_room(self, tokens: Sequence[int]) -> bool:
        """Whether more requests fit beside all others and no request waits to start.

        A request also holds cache for the drafts of the steps in flight, which it may reject.
        """
        scheduler = self._core.scheduler
        _, waiting = scheduler.get_request_counts()
        if waiting or len(scheduler.requests) + len(tokens) > self._sequences:
            return False
        cache = scheduler.kv_cache_manager
        blocks = sum(
            -(-(length + self._drafts) // manager.block_size)
            for manager in cache.coordinator.single_type_managers
            for length in tokens
        )
        return bool(blocks <= cache.block_pool.get_num_free_blocks())

    def suspend(self) -> Parked:
        """Finish the steps in flight and take all requests off the schedule."""
        scheduler, finished = self._core.scheduler, []
        scheduler.set_pause_state(PauseState.PAUSED_ALL)
        while self._core.batch_queue:
            finished += self._stepper.step()
        scheduler.set_pause_state(PauseState.UNPAUSED)
        running, scheduler.running = scheduler.running, []
        waiting = list(scheduler.waiting)
        scheduler.waiting.remove_requests(waiting)
        return Parked(running, waiting, self._stepper.suspend(finished))

    def resume(self, parked: Parked) -> None:
        """Put requests back in their order."""
        self._core.scheduler.running = []
        self.drop(parked)
        self._stepper.resume(parked.outputs)

    def drop(self, parked: Parked) -> None:
        """Add requests to the schedule, where the caller aborts them."""
        scheduler = self._core.scheduler
        scheduler.running += parked.running
        for request in parked.waiting:
            scheduler.waiting.add_request(request)


def _is_idle(engine: LLMEngine) -> bool:
    """A new engine has no requests, free cache blocks and an empty batch queue."""
    core = engine.engine_core.engine_core
    scheduler = core.scheduler
    none = tuple(scheduler.get_request_counts()) == (0, 0)
    queues = [scheduler.running, list(scheduler.waiting), dict(scheduler.requests)]
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return none and not any(queues) and free > 0 and not core.batch_queue


SCHEDULE = RegisterEntry(
    name="schedule",
    purpose="Takes parked candidates off the schedule; they keep their cache blocks.",
    stage=Stage.ENGINE,
    vllm_names=(
        f"{_CORE}.batch_queue",
        f"{_CORE}.batch_queue_size",
        f"{_SCHEDULER}.running",
        f"{_SCHEDULER}.requests",
        f"{_SCHEDULER}.set_pause_state",
        f"{_SCHEDULER}.get_request_counts",
        f"{_SCHEDULER}.waiting.add_request",
        f"{_SCHEDULER}.waiting.remove_requests",
        " | ".join(f"{_SCHEDULER}.{limit}" for limit in _LIMITS),
        f"{_CACHE}.block_pool.get_num_free_blocks",
        f"{_CACHE}.coordinator.single_type_managers",
        "vllm.v1.core.sched.interface:PauseState.PAUSED_ALL",
    ),
    removable_when="vLLM can pause and resume single requests",
    self_test=_is_idle,
)
