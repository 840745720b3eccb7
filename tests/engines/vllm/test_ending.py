"""vLLM ends, or is left behind."""

import logging
import multiprocessing
import threading
import time
import weakref
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm.ending import end_vllm
from modnorm.engines.vllm.engine import VllmEngine

SECONDS = 60.0


@pytest.fixture
def process() -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(SECONDS,))
    process.start()
    yield process
    process.kill()
    process.join()


def running(shutdown: object, *processes: BaseProcess) -> SimpleNamespace:
    """A running engine, as far as its end looks at it."""
    workers = [SimpleNamespace(proc=process) for process in processes]
    executor = SimpleNamespace(workers=workers)
    executor._finalizer = weakref.finalize(SimpleNamespace, list)
    executor._finalizer.atexit = False
    inner = SimpleNamespace(model_executor=executor)
    return SimpleNamespace(engine_core=SimpleNamespace(shutdown=shutdown, engine_core=inner))


def test_workers_of_an_end_that_hangs_are_killed(
    process: BaseProcess, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def hang_here() -> None:
        go_on.wait(SECONDS)

    engine = running(hang_here, process)
    with caplog.at_level(logging.WARNING):
        assert not end_vllm(engine, seconds=0.1)
    go_on.set()
    assert process.exitcode == -9
    assert "hang_here" in caplog.text
    assert not engine.engine_core.engine_core.model_executor._finalizer.alive


def test_an_end_that_fails_says_why_and_leaves_no_process(process: BaseProcess) -> None:
    def fail() -> None:
        raise TimeoutError("no answer")

    for engine in (running(fail, process), running(fail)):
        with pytest.raises(TimeoutError, match="no answer"):
            end_vllm(engine, seconds=SECONDS)
    assert process.exitcode == -9


def test_an_engine_without_processes_ends_in_the_thread_that_asks() -> None:
    threads = []
    assert end_vllm(running(lambda: threads.append(threading.current_thread())), seconds=0.0)
    assert threads == [threading.current_thread()]


def test_an_engine_with_a_worker_process_answers_and_ends(
    bundled: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    settings = EngineSettings(max_model_len=128, max_num_seqs=2)
    apart = {"distributed_executor_backend": "mp"}
    engine = VllmEngine(bundled, settings, arguments=apart)
    try:
        executor = engine._engine.engine_core.engine_core.model_executor  # type: ignore[attr-defined]  # inside
        assert isinstance(executor._finalizer, weakref.finalize)
        process = executor.workers[0].proc
        assert process.is_alive()
        (answer,) = engine.generate([[5, 6, 7]], GenerationLimits(8))
        assert 0 < answer.tokens <= 8
    finally:
        engine.close()
    assert not process.is_alive()
    assert "did not end" not in caplog.text
