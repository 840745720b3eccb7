"""All waits for vLLM's queues are bounded, also if vLLM does not bound them."""

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
    """Install a fake vLLM; return its condition and the list of its sleep times."""

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


def test_the_installed_vllm_has_the_expected_names() -> None:
    queues.fix_queues()
    queue = shm_broadcast.MessageQueue(1, 1)
    assert isinstance(queue.local_socket.context, queues.QueueContext)
    assert hasattr(shm_broadcast, "SpinCondition")


def test_collecting_a_garbage_queue_ends() -> None:
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
