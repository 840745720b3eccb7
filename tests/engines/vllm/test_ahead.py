"""Three steps under way, and sequences that the cache has no room for while they are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm import ahead
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.start import Changes

PROMPTS = [[*range(first, first + 20)] for first in range(5, 11)]


class _Knows:
    def __init__(self) -> None:
        self.num_stale_output_tokens = 0


class _Discards:
    def __init__(self) -> None:
        self.num_output_placeholders = 0
        self.async_tokens_to_discard = 0


class _Neither:
    def __init__(self) -> None:
        self.num_output_placeholders = 0


@pytest.fixture
def make_vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], SimpleNamespace]:
    """Put a vLLM in place whose requests are of a class; return its config."""

    def make(request: type) -> SimpleNamespace:
        class Scheduler:
            def _preempt_request(self, request: object, *_: object) -> None:
                vars(request)["preempted"] = True

        class Config:
            max_concurrent_batches = 2

        class RunsAhead(Config):
            max_concurrent_batches = 3

        monkeypatch.setattr(ahead, "Request", request)
        monkeypatch.setattr(ahead, "AsyncScheduler", Scheduler)
        monkeypatch.setattr(ahead, "VllmConfig", Config)
        monkeypatch.setattr(ahead, "_RunsAhead", RunsAhead)
        config = Config()
        backend = SimpleNamespace(distributed_executor_backend="mp")
        config.parallel_config = backend  # type: ignore[attr-defined]  # what it has of vLLM's
        return SimpleNamespace(config=config, scheduler=Scheduler())

    return make


def test_what_is_under_way_for_a_preempted_request_is_dropped_where_vllm_would_not(
    make_vllm: Callable[[type], SimpleNamespace],
) -> None:
    fake, request = make_vllm(_Discards), _Discards()
    ahead.run_ahead(fake.config)
    ahead.run_ahead(fake.config)
    assert fake.config.max_concurrent_batches == 3
    for under_way, dropped in ((2, 2), (1, 3)):
        request.num_output_placeholders = under_way
        fake.scheduler._preempt_request(request, 0.0)
        assert request.num_output_placeholders == 0
        assert request.async_tokens_to_discard == dropped
    assert vars(request)["preempted"]


@pytest.mark.parametrize(("request_of", "steps"), [(_Knows, 3), (_Neither, 2)])
def test_a_vllm_that_would_mix_up_tokens_runs_no_further_ahead(
    make_vllm: Callable[[type], SimpleNamespace], request_of: type, steps: int
) -> None:
    fake, request = make_vllm(request_of), request_of()
    vars(request)["num_output_placeholders"] = 2
    ahead.run_ahead(fake.config)
    assert fake.config.max_concurrent_batches == steps
    fake.scheduler._preempt_request(request, 0.0)
    assert request.num_output_placeholders == 2


def test_a_worker_in_the_same_process_runs_no_further_ahead(
    make_vllm: Callable[[type], SimpleNamespace],
) -> None:
    fake = make_vllm(_Knows)
    fake.config.parallel_config.distributed_executor_backend = "uni"
    ahead.run_ahead(fake.config)
    assert fake.config.max_concurrent_batches == 2


def test_answers_are_the_same_where_the_cache_has_no_room_for_all(
    float32: Checkpoint, as_on_gpu: Callable[[], AbstractContextManager[None]]
) -> None:
    """Sequences are preempted with steps of theirs under way, and begun again."""
    said, preempted = [], []
    for blocks in (64, 9):
        settings = EngineSettings(max_model_len=128, max_num_seqs=6, max_parked_seqs=0)
        changes = Changes({"block_size": 32, "num_gpu_blocks_override": blocks})
        with as_on_gpu():
            engine = VllmEngine(float32, settings, changes=changes)
        try:
            assert engine.environment["under_way"] == "3"
            scheduler = engine._engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]  # inside
            preempt, count = scheduler._preempt_request, list[int]()

            def counted(*given: object, preempt=preempt, count=count, **named: object) -> None:
                count.append(1)
                preempt(*given, **named)

            scheduler._preempt_request = counted
            ended = engine.generate(PROMPTS, GenerationLimits(100))
            said.append({one.index: one.text for one in ended})
            preempted.append(len(count))
        finally:
            engine.close()
    assert said[0] == said[1]
    assert preempted[0] == 0 < preempted[1]
