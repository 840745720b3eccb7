"""No wait for vLLM's queues is endless, also where vLLM does not bound it."""

import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from verification.labs.waiting import HANG_SECONDS

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

import zmq
from vllm.distributed.device_communicators import shm_broadcast

from modnorm.engines.vllm.internals import message_queues as queues

Waits = list[int | None]


@pytest.fixture
def make_vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[type, Waits]]:
    """Put a vLLM in place; return its condition, and where that notes how long it sleeps."""

    def make(**has: object) -> tuple[type, Waits]:
        waits: Waits = []

        class SpinCondition:
            def wait(self, timeout_ms: int | None = None) -> None:
                waits.append(timeout_ms)

        module = SimpleNamespace(SpinCondition=SpinCondition, **has)
        monkeypatch.setattr(queues, "shm_broadcast", module)
        return SpinCondition, waits

    return make


def test_no_wait_is_longer_than_the_bound(make_vllm: Callable[..., tuple[type, Waits]]) -> None:
    condition, waits = make_vllm()
    queues.fix_queues()
    queues.fix_queues()
    for given in (None, 1, queues.RECHECK_MS, 60_000):
        condition().wait(given)
    condition().wait()
    longest = queues.RECHECK_MS
    assert waits == [longest, 1, longest, longest, longest]


def test_a_vllm_that_looks_by_itself_is_left_alone(
    make_vllm: Callable[..., tuple[type, Waits]],
) -> None:
    condition, waits = make_vllm(SHM_READER_RECHECK_INTERVAL_MS=5000)
    queues.fix_queues()
    condition().wait(60_000)
    assert waits == [60_000]


def test_a_vllm_whose_readers_never_sleep_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "shm_broadcast", SimpleNamespace())
    queues.fix_queues()


def test_the_vllm_that_is_here_has_what_is_looked_for() -> None:
    queues.fix_queues()
    queue = shm_broadcast.MessageQueue(1, 1)
    assert isinstance(queue.local_socket.context, queues.QueueContext)
    assert hasattr(shm_broadcast, "SpinCondition")


def test_the_collection_of_a_queue_that_is_garbage_ends() -> None:
    def collect() -> None:
        context = queues.QueueContext()
        cycle: list[object] = [context.socket(zmq.XPUB), context.socket(zmq.PUB)]
        cycle.append(cycle)
        del context, cycle
        gc.collect()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
