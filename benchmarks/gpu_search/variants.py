"""Variants of the project's engine, which show the parts of a step's time."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variant:
    """Differences from the project's default.

    Attributes:
        arguments: Engine arguments of vLLM.
        variables: Environment variables.
        without: Registered optimisations that are switched off (docs/vllm.md).
    """

    arguments: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()


USUAL = ""
VARIANTS: Mapping[str, Variant] = {
    USUAL: Variant(),
    # Each step starts after the tokens of the last one have arrived.
    "sync": Variant(arguments={"async_scheduling": False}),
    # Every running request passes vLLM's output processor at every step.
    "whole": Variant(without=frozenset({"output_gathering"})),
    # vLLM's worker in the scheduler's process or in a separate one, as for an engine with or
    # without a whole GPU.
    "inside": Variant(arguments={"distributed_executor_backend": "uni"}),
    "apart": Variant(arguments={"distributed_executor_backend": "mp"}),
    # vLLM's default number of tokens per step.
    "short": Variant(arguments={"max_num_batched_tokens": 2048}),
    # vLLM's default number of steps in flight.
    "two": Variant(without=frozenset({"in_flight_steps"})),
    # Every running sequence allocates memory at every step, as in vLLM.
    "asking": Variant(without=frozenset({"block_allocation"})),
    # The older and the newer of vLLM's model runners, independent of its default.
    "runner1": Variant(variables={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    "runner2": Variant(variables={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
}
