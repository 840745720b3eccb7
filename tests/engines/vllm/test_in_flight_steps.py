"""Three steps in flight, with sequences that are preempted because the cache is full."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)


from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, GenerationLimits
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.internals import in_flight_steps, register
from modnorm.engines.vllm.internals.in_flight_steps import IN_FLIGHT_STEPS, discard_preempted
from modnorm.engines.vllm.internals.register_entry import Stage
from modnorm.engines.vllm.start import Overrides

PROMPTS = [[*range(first, first + 20)] for first in range(5, 11)]


class _Request:
    """Made with the arguments of vLLM's."""

    request_id = "a"

    def __init__(self, **_: object) -> None:
        self.num_output_placeholders = 0


class _Discards(_Request):
    async_tokens_to_discard = 0


@pytest.fixture
def make_vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """Put a vLLM in place whose requests are of a class; return its config and its scheduler."""

    def make(request: type, backend: str = "mp") -> SimpleNamespace:
        class Scheduler:
            def _preempt_request(self, request: object, *_: object) -> None:
                vars(request)["preempted"] = True

        class Config:
            max_concurrent_batches = 2
            speculative_config = None
            parallel_config = SimpleNamespace(distributed_executor_backend=backend)

        class DeeperConfig(Config):
            max_concurrent_batches = 3

        monkeypatch.setattr("vllm.v1.request.Request", request)
        monkeypatch.setattr(in_flight_steps, "DeeperConfig", DeeperConfig)
        monkeypatch.setattr(register, "REGISTER", [IN_FLIGHT_STEPS])
        core = SimpleNamespace(scheduler=Scheduler(), batch_queue=deque())
        return SimpleNamespace(config=Config(), core=core)

    return make


def step(scheduled: Mapping[str, int]) -> tuple[None, SimpleNamespace, None]:
    """Return a step in flight: the drafts of each request."""
    return (
        None,
        SimpleNamespace(
            num_scheduled_tokens={name: 1 + drafts for name, drafts in scheduled.items()},
            scheduled_spec_decode_tokens={
                name: [-1] * drafts for name, drafts in scheduled.items() if drafts
            },
        ),
        None,
    )


def started(fake: SimpleNamespace) -> int:
    """Start a vLLM as `start_vllm` does; return the number of steps in flight."""
    if IN_FLIGHT_STEPS.name not in register.check_stage(Stage.CONFIG, fake.config):
        return int(fake.config.max_concurrent_batches)
    discard_preempted(fake.core)
    return int(in_flight_steps.with_three_steps(fake.config).max_concurrent_batches)


@pytest.mark.parametrize("drafts", [(0, 0, 0), (15, 7, 3), (0, 15, 0)])
def test_outputs_in_flight_of_a_preempted_request_are_dropped(
    make_vllm: Callable[..., SimpleNamespace], drafts: tuple[int, int, int]
) -> None:
    """Steps of another request and steps that are dropped already do not count."""
    fake, request = make_vllm(_Discards), _Discards()
    assert started(fake) == 3
    oldest, middle, latest = drafts
    fake.core.batch_queue.extend([step({"a": middle}), step({"b": 3}), step({"a": oldest})])
    request.num_output_placeholders = 2 + middle + oldest
    fake.core.scheduler._preempt_request(request, 0.0)
    assert request.num_output_placeholders == 0
    assert request.async_tokens_to_discard == 2
    fake.core.batch_queue.appendleft(step({"a": latest}))
    request.num_output_placeholders = 1 + latest
    fake.core.scheduler._preempt_request(request, 0.0)
    assert request.num_output_placeholders == 0
    assert request.async_tokens_to_discard == 3
    assert vars(request)["preempted"]


@pytest.mark.usefixtures("optimised")
def test_answers_are_the_same_if_the_cache_is_too_small(
    float32: Checkpoint, as_on_gpu: Callable[[], AbstractContextManager[None]]
) -> None:
    """Sequences are preempted with steps in flight, and restarted."""
    said, preempted = [], []
    for blocks in (64, 9):
        settings = EngineSettings(max_model_len=128, max_num_seqs=6)
        overrides = Overrides({"block_size": 32, "num_gpu_blocks_override": blocks})
        with as_on_gpu():
            engine = VllmEngine(float32, settings, overrides=overrides)
        try:
            assert engine.environment["steps_in_flight"] == "3"
            scheduler = engine._engine.engine_core.engine_core.scheduler
            preempt, count = scheduler._preempt_request, list[int]()

            def counted(*given: object, preempt=preempt, count=count, **named: object) -> None:
                count.append(1)
                preempt(*given, **named)

            scheduler._preempt_request = counted
            ended = engine.generate(PROMPTS, GenerationLimits(60))
            said.append({one.index: one.text for one in ended})
            preempted.append(len(count))
        finally:
            engine.close()
    assert said[0] == said[1]
    assert preempted[0] == 0 < preempted[1]
