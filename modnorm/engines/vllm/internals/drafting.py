"""Puts the population's drafts into vLLM's model runners.

The runner of version 2 makes its speculator in `init_speculator`. vLLM knows the method
`ngram_gpu`: it needs no drafting model and keeps asynchronous scheduling. Older versions refuse it
in this runner, because they have no speculator for it; here the population's takes its place.

The runner of version 1, which vLLM's CPU build has, makes a named class (`custom_class`). It
switches asynchronous scheduling off.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import VllmConfig
from vllm.platforms import current_platform

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage, resolve
from modnorm.engines.vllm.speculator import PopulationProposer, PopulationSpeculator

if TYPE_CHECKING:
    from modnorm.engines.drafts.matching import AnswerTable

Schedule = tuple[tuple[int, int, int], ...]
"""First and last number of sequences of a step, and the draft tokens of each of them."""
LONG, SHORT = 7, 3
"""Draft tokens of a sequence."""
_LONG_STEP = 8e11
"""Most tokens that a step with long drafts verifies, times the parameters of a rank. On an
H200 a larger value gains nothing on GSM8K and costs time on Countdown."""
_MOST_SEQUENCES = 4096
NO_DRAFTS: Schedule = ((1, _MOST_SEQUENCES, 0),)
"""The schedule of an engine without drafts."""
_LEAST_GRAPHS = 512
_GPU_METHOD, _CPU_METHOD = "ngram_gpu", "custom_class"
_METHOD_AFTER_START = "custom_class"
_CPU_TOKENS = 7
_PROPOSER = "modnorm.engines.vllm.speculator.PopulationProposer"
_UNSUPPORTED = "vllm.config:VllmConfig._get_v2_model_runner_unsupported_features"
_PACKAGE = "vllm.v1.worker.gpu.spec_decode"
_RUNNER = "vllm.v1.worker.gpu.model_runner"
_SPECULATOR_MAKER = "init_speculator"
_REMEDY = "use drafts: none"
_VERSIONS = "0.26 on a GPU; 0.32, CPU builds"


def draft_config(parameters: int) -> Mapping[str, object]:
    """Return vLLM's `speculative_config` for drafts."""
    if current_platform.is_cpu():
        return {"method": _CPU_METHOD, "model": _PROPOSER, "num_speculative_tokens": _CPU_TOKENS}
    schedule = draft_schedule(parameters)
    return {
        "method": _GPU_METHOD,
        "num_speculative_tokens": max(tokens for _, _, tokens in schedule),
        "num_speculative_tokens_per_batch_size": list(schedule),
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 1,
    }


def draft_schedule(parameters: int) -> Schedule:
    """Return the draft tokens of each sequence by the sequences of a step."""
    last = int(min(_LONG_STEP / parameters, _MOST_SEQUENCES) / (1 + LONG))
    if last < 1:
        return ((1, _MOST_SEQUENCES, SHORT),)
    return (1, last, LONG), (last + 1, _MOST_SEQUENCES, SHORT)


def graph_sizes(schedule: Schedule, sequences: int) -> list[int]:
    """Return the tokens of a step for which vLLM captures CUDA graphs."""
    largest = max(min(last, sequences) * (1 + tokens) for _, last, tokens in schedule)
    sizes = [1, 2, 4] if schedule == NO_DRAFTS else []
    size, distance = 8, 8
    while size < max(largest, _LEAST_GRAPHS):
        sizes.append(size)
        size += distance
        distance = max(8, 2 ** (size.bit_length() - 3))
    return [*sizes, size]


def install_speculator() -> None:
    """Let vLLM's runner of version 2 make the population's speculator, and verify its drafts."""
    if current_platform.is_cpu() or not hasattr(VllmConfig, _UNSUPPORTED.rpartition(".")[2]):
        return
    try:
        make = resolve(f"{_PACKAGE}:{_SPECULATOR_MAKER}")
    except (ImportError, AttributeError):
        return
    if isinstance(make, _SpeculatorMaker):
        return
    _support_method()
    verify_in_one_warp()
    for module in (sys.modules[_PACKAGE], sys.modules.get(_RUNNER)):
        if module is not None:
            setattr(module, _SPECULATOR_MAKER, _SpeculatorMaker(make))


def keep_compile_cache(config: VllmConfig) -> None:
    """Change the method's name in a complete configuration.

    vLLM compiles a model with `ngram_gpu` anew at every start. The name has no other effect by
    then; `model` still names the method.
    """
    if _has_drafts(config) and config.speculative_config.method == _GPU_METHOD:
        config.speculative_config.method = _METHOD_AFTER_START


class _SpeculatorMaker:
    """vLLM's `init_speculator`, which makes the population's for its method."""

    def __init__(self, make: Any) -> None:  # noqa: ANN401 - vLLM's function
        self._make = make

    def __call__(self, config: VllmConfig, device: torch.device, *others: object) -> object:
        if config.speculative_config.model == _GPU_METHOD:
            return PopulationSpeculator(config, device)
        return self._make(config, device, *others)


def _support_method() -> None:
    """Remove the method from the features that the runner of version 2 lacks."""
    lacking = VllmConfig._get_v2_model_runner_unsupported_features  # noqa: SLF001 - no other hook

    def lacking_others(config: VllmConfig) -> list[str]:
        features: list[str] = lacking(config)
        if not _has_drafts(config) or config.speculative_config.model != _GPU_METHOD:
            return features
        return [
            one for one in features if _GPU_METHOD not in one and _METHOD_AFTER_START not in one
        ]

    VllmConfig._get_v2_model_runner_unsupported_features = lacking_others  # noqa: SLF001 - see above


def connect_drafts(worker: Any) -> "AnswerTable | None":  # noqa: ANN401 - vLLM's worker
    """Let the drafts read a worker's sequences."""
    runner = worker.model_runner
    if not _has_drafts(worker):
        return None
    if (speculator := getattr(runner, "speculator", None)) is not None:
        sample_in_vocabulary(runner)
        speculator.attach(runner.req_states)
        return speculator.table  # type: ignore[no-any-return]  # vLLM's attribute
    runner.drafter.attach(runner)
    return runner.drafter.table  # type: ignore[no-any-return]  # as above


def sample_in_vocabulary(runner: Any) -> None:  # noqa: ANN401 - vLLM's model runner
    """Keep sampled tokens in the vocabulary.

    If logits are NaN, vLLM's verification of drafts may choose a token outside it, which ends the
    worker in the next step. The candidate fails anyway (`LogitCheck`), and the worker goes on.
    """
    sample, last = runner.sample, runner.vocab_size - 1

    def sample_clamped(*arguments: object) -> tuple[Any, ...]:
        sampled: tuple[Any, ...] = sample(*arguments)
        sampled[0].sampled_token_ids.clamp_(0, last)
        return sampled

    runner.sample = sample_clamped


def _has_drafts(subject: Any) -> bool:  # noqa: ANN401 - vLLM's configuration or worker
    config = getattr(subject, "vllm_config", subject)
    return config.speculative_config is not None


def _keeps_method(config: VllmConfig) -> bool:
    """The method is the requested one, and on a GPU vLLM's runner of version 2 runs ahead."""
    method = config.speculative_config.method
    if current_platform.is_cpu():
        return bool(method == _CPU_METHOD)
    ahead = config.scheduler_config.async_scheduling and config.use_v2_model_runner
    return bool(method == _GPU_METHOD and ahead)


def _has_drafter(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker, extended
    """The worker's runner has the population's speculator."""
    runner = worker.model_runner
    speculator = getattr(runner, "speculator", None)
    if speculator is None:
        return isinstance(runner.drafter, PopulationProposer)
    states = ("all_token_ids.gpu", "total_len.gpu", "prompt_len.gpu")
    return isinstance(speculator, PopulationSpeculator) and all(
        isinstance(resolve(f".{name}", runner.req_states), torch.Tensor) for name in states
    )


DRAFT_METHOD = RegisterEntry(
    name="draft_method",
    purpose="Verifies the population's drafts in vLLM's model runners.",
    stage=Stage.CONFIG,
    vllm_names=(
        ".speculative_config.method",
        ".speculative_config.model",
        f"{_UNSUPPORTED} | vllm.v1.spec_decode.custom_class_proposer:create_custom_proposer",
        f"{_PACKAGE}:{_SPECULATOR_MAKER}",
    ),
    versions=_VERSIONS,
    remedy=_REMEDY,
    removable_when="the runner of version 2 makes a named class",
    self_test=_keeps_method,
    applies=_has_drafts,
)
DRAFTER = RegisterEntry(
    name="drafter",
    purpose="Reads sequences in the model runner's memory, to draft without the host, and keeps "
    "sampled tokens in the vocabulary.",
    stage=Stage.WORKER,
    vllm_names=(
        ".model_runner.speculator | .model_runner.drafter",
        ".model_runner.req_states | .model_runner.input_batch.req_ids",
        ".model_runner.sample | .model_runner.sampler",
    ),
    versions=_VERSIONS,
    remedy=_REMEDY,
    removable_when="vLLM passes the sequences to speculators",
    self_test=_has_drafter,
    applies=_has_drafts,
)


_MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"
_KERNEL = "_insert_resampled_kernel"


class OneWarp:
    """A Triton kernel whose programs have one warp."""

    def __init__(self, kernel: Any) -> None:  # noqa: ANN401 - Triton is untyped
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """Return the launcher of a grid of programs."""
        return partial(self._kernel[grid], num_warps=1)


def verify_in_one_warp() -> None:
    """Let vLLM launch the kernel with one warp, in this process."""
    try:
        kernel = resolve(f"{_MODULE}:{_KERNEL}")
    except (ImportError, AttributeError):
        return
    if not isinstance(kernel, OneWarp):
        setattr(sys.modules[_MODULE], _KERNEL, OneWarp(kernel))


def _has_speculator(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker
    return getattr(worker.model_runner, "speculator", None) is not None


def _has_one_warp(_: object) -> bool:
    """The kernel is launched with one warp."""
    return isinstance(resolve(f"{_MODULE}:{_KERNEL}"), OneWarp)


DRAFT_VERIFICATION = RegisterEntry(
    name="draft_verification",
    purpose="Launches a kernel with one warp, because several race for the number of tokens.",
    stage=Stage.WORKER,
    vllm_names=(f"{_MODULE}:{_KERNEL}",),
    versions="0.26 on a GPU",
    remedy="use drafts: none",
    removable_when="vLLM launches the kernel with one warp",
    self_test=_has_one_warp,
    applies=_has_speculator,
)
