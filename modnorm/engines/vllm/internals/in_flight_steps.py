"""Keeps three of vLLM's steps in flight instead of two.

vLLM's scheduler plans a step while another runs. Plans and tokens travel between the scheduler and
a worker process. This takes longer than a step of a small model, so the device waits. With three
steps in flight the worker always has the next one (ADR 10).

A finished sequence takes part in one more step, whose token is dropped.
"""

from typing import TYPE_CHECKING

from vllm import SamplingParams
from vllm.config import VllmConfig

from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage, resolve

if TYPE_CHECKING:
    from collections import deque
    from concurrent.futures import Future

    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    BatchQueue = deque[
        tuple[Future[ModelRunnerOutput], SchedulerOutput, Future[ModelRunnerOutput]]
    ]

_REQUEST = "vllm.v1.request:Request"
_USUAL, _DEEPER = 2, 3
_KEEPS_APART = "num_stale_output_tokens"
"""Attribute of requests that separate tokens in flight at a preemption from later ones."""
_DISCARDS = "async_tokens_to_discard"
"""Attribute of requests of older versions: the number of outputs to discard as they arrive."""


class DeeperConfig(VllmConfig):  # type: ignore[misc]  # vLLM is untyped where it is not installed
    """vLLM's configuration with three steps in flight; worker processes receive it as well."""

    @property
    def max_concurrent_batches(self) -> int:
        """Steps in flight."""
        return _DEEPER


def with_three_steps(config: VllmConfig) -> VllmConfig:
    """Return a configuration with the same content and three steps in flight."""
    deeper = object.__new__(DeeperConfig)
    deeper.__dict__.update(vars(config))
    return deeper


def discard_preempted(core: "EngineCore") -> None:
    """Discard the tokens in flight of a preempted request, which vLLM 0.26 would misplace.

    The request generates them again. Versions that separate them need no change.
    """
    if hasattr(_probe_request(), _KEEPS_APART):
        return
    scheduler, queue = core.scheduler, core.batch_queue
    preempt = scheduler._preempt_request  # noqa: SLF001 - vLLM offers no other hook

    def preempt_and_discard(request: "Request", *arguments: object, **named: object) -> None:
        preempt(request, *arguments, **named)
        request.async_tokens_to_discard += _outputs_in_flight(request, queue)
        request.num_output_placeholders = 0

    scheduler._preempt_request = preempt_and_discard  # noqa: SLF001 - see above


def _outputs_in_flight(request: "Request", queue: "BatchQueue") -> int:
    """Return the number of steps in flight that will generate tokens of a request."""
    placeholders, outputs = request.num_output_placeholders, 0
    for _, planned, _ in queue:
        if placeholders > 0 and request.request_id in planned.num_scheduled_tokens:
            drafts = planned.scheduled_spec_decode_tokens.get(request.request_id, ())
            placeholders -= 1 + len(drafts)
            outputs += 1
    return outputs


def _has_worker_process(config: VllmConfig) -> bool:
    apart = config.parallel_config.distributed_executor_backend == "mp"
    return apart and bool(config.max_concurrent_batches == _USUAL)


def _keeps_tokens_apart(config: VllmConfig) -> bool:
    """A request can separate or discard tokens in flight; the configuration has three steps."""
    request, deeper = _probe_request(), with_three_steps(config)
    supported = hasattr(request, _KEEPS_APART) or hasattr(request, _DISCARDS)
    return supported and bool(deeper.max_concurrent_batches == _DEEPER)


def _probe_request() -> "Request":
    return resolve(_REQUEST)(
        request_id="probe",
        prompt_token_ids=[0],
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
    )


IN_FLIGHT_STEPS = RegisterEntry(
    name="in_flight_steps",
    purpose="Keeps three steps in flight, so that a worker process never waits for a plan.",
    kind=Kind.OPTIMISATION,
    stage=Stage.CONFIG,
    vllm_names=(
        ".max_concurrent_batches",
        "vllm.v1.core.sched.scheduler:Scheduler._preempt_request",
        "vllm.v1.core.sched.output:SchedulerOutput",
        _REQUEST,
    ),
    otherwise="two steps in flight",
    removable_when="vLLM has a setting for steps in flight",
    self_test=_keeps_tokens_apart,
    applies=_has_worker_process,
)
