"""vLLM's worker in a process of its own, as for an engine with a GPU of its own."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing import active_children
from multiprocessing.process import BaseProcess

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm import start as starting
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.errors import CandidateError, DoesNotFitError, EngineError, IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

PROMPTS = [[5, 6, 7], [8, 9]]


@pytest.fixture
def start(
    float32: Checkpoint, as_on_gpu: Callable[[], AbstractContextManager[None]]
) -> Callable[..., VllmEngine]:
    def start(**changes: object) -> VllmEngine:
        settings = EngineSettings(max_model_len=128, max_num_seqs=4)
        with as_on_gpu(), pytest.MonkeyPatch.context() as patch:
            usual = starting.engine_arguments
            patch.setattr(starting, "engine_arguments", lambda *given: usual(*given) | changes)
            return VllmEngine(float32, settings)

    return start


@pytest.fixture
def engine(start: Callable[..., VllmEngine]) -> Iterator[VllmEngine]:
    engine = start()
    yield engine
    if hasattr(engine, "_engine"):
        engine.close()


def test_logits_are_checked_and_the_worker_ends_with_the_engine(
    engine: VllmEngine,
    scale_map: ScaleMap,
    draw: Callable[..., Descriptor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("modnorm.engines.vllm.engine.CHECK_EVERY", 2)
    process = worker_of(engine)
    assert process.is_alive()
    before = list(engine.generate(PROMPTS, GenerationLimits(40)))
    steps: list[None] = []
    with (
        engine.candidate(draw(scale_map, 1, radius=1e30), scale_map),
        pytest.raises(CandidateError, match="not finite"),
    ):
        list(engine.generate(PROMPTS, GenerationLimits(40), poll=lambda: steps.append(None)))
    assert len(steps) == 6
    assert list(engine.generate(PROMPTS, GenerationLimits(40))) == before
    engine.close()
    assert not process.is_alive()


def test_a_killed_worker_is_an_engine_error(
    engine: VllmEngine, scale_map: ScaleMap, draw: Callable[..., Descriptor]
) -> None:
    process = worker_of(engine)

    def kill() -> None:
        process.kill()
        process.join()

    ended = "a worker process of vLLM has died"
    with pytest.raises(EngineError, match=f"generation failed: {ended}"):
        list(engine.generate(PROMPTS, GenerationLimits(40), poll=kill))
    with pytest.raises(EngineError, match=ended), engine.candidate(draw(scale_map, 1), scale_map):
        pass


def test_a_worker_that_fails_to_start_reports_the_reason(start: Callable[..., VllmEngine]) -> None:
    with pytest.raises(IncompatibleError, match="no room beside others"):
        start(worker_extension_cls="tests.engines.vllm.refused_worker.RefusedWorker")


def test_a_late_failure_of_the_start_leaves_no_worker(start: Callable[..., VllmEngine]) -> None:
    before = set(active_children())
    with pytest.raises(DoesNotFitError):
        start(kv_cache_memory_bytes=1)
    assert set(active_children()) <= before


def worker_of(engine: VllmEngine) -> BaseProcess:
    process: BaseProcess = engine._engine.model_executor.workers[0].proc
    return process
