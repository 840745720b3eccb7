"""vLLM's worker in a process of its own, as an engine has it that has a GPU to itself."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from multiprocessing.process import BaseProcess

import pytest
import torch

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Completion, EngineSettings, GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.start import Changes
from modnorm.errors import CandidateError, EngineError, IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

APART = Changes({"distributed_executor_backend": "mp"})
ON_CPU = not torch.cuda.is_available()
PROMPTS = [[5, 6, 7], [8, 9]]


@pytest.fixture
def engine(float32: Checkpoint) -> Iterator[VllmEngine]:
    settings = EngineSettings(max_model_len=128, max_num_seqs=2)
    engine = VllmEngine(float32, settings, changes=APART)
    yield engine
    if hasattr(engine, "_engine"):
        engine.close()


def test_it_is_looked_at_on_the_way_and_ends_with_the_engine(
    engine: VllmEngine,
    scale_map: ScaleMap,
    draw: Callable[..., Descriptor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("modnorm.engines.vllm.engine.LOOK_EVERY", 2)
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


def test_one_that_is_killed_is_a_failure_of_the_engine(engine: VllmEngine) -> None:
    process = worker_of(engine)

    def kill() -> None:
        process.kill()
        process.join()

    with pytest.raises(EngineError):
        list(engine.generate(PROMPTS, GenerationLimits(40), poll=kill))


def test_one_that_does_not_start_says_why(float32: Checkpoint) -> None:
    class_of_others = "tests.engines.vllm.refused_worker.RefusedWorker"
    changes = Changes({**APART.arguments, "worker_extension_cls": class_of_others})
    with pytest.raises(IncompatibleError, match="no room beside others"):
        VllmEngine(float32, EngineSettings(max_model_len=128, max_num_seqs=2), changes=changes)


def test_candidates_rest_whatever_is_under_way(
    float32: Checkpoint,
    scale_map: ScaleMap,
    draw: Callable[..., Descriptor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a CPU vLLM has one step under way: three are taken here all the same."""
    monkeypatch.setattr("modnorm.engines.vllm.ahead._USUAL", 1 if ON_CPU else 2)
    settings = EngineSettings(max_model_len=128, max_num_seqs=4)
    engine = VllmEngine(float32, settings, changes=APART)
    try:
        core = engine._engine.engine_core.engine_core  # type: ignore[attr-defined]  # inside
        assert core.batch_queue.maxlen == 3
        alone = []
        for seed in (1, 2):
            with engine.candidate(draw(scale_map, seed), scale_map):
                alone.append(texts(engine.generate(PROMPTS, GenerationLimits(40))))
        assert alone[0] != alone[1]
        other, steps = [], count()

        def rest() -> None:
            if next(steps) in (1, 2, 9):
                with engine.parked(), engine.candidate(draw(scale_map, 2), scale_map):
                    other.append(texts(engine.generate(PROMPTS, GenerationLimits(40))))

        with engine.candidate(draw(scale_map, 1), scale_map):
            assert texts(engine.generate(PROMPTS, GenerationLimits(40), poll=rest)) == alone[0]
        assert other == [alone[1]] * 3
    finally:
        engine.close()


def texts(completions: Iterable[Completion]) -> dict[int, str]:
    return {one.index: one.text for one in completions}


def worker_of(engine: VllmEngine) -> BaseProcess:
    process: BaseProcess = engine._engine.model_executor.workers[0].proc  # type: ignore[attr-defined]  # inside
    return process
