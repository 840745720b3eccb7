"""What else the project's engine could be started with, to see what a step's time is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Variant:
    """What is otherwise than the project has it.

    Attributes:
        arguments: Engine arguments of vLLM's.
        variables: Environment variables.
        without: Registered optimisations that are switched off (docs/vllm.md).
    """

    arguments: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()


USUAL = ""
VARIANTS: Mapping[str, Variant] = {
    USUAL: Variant(),
    # The next step is not launched before the tokens of the last one are there.
    "sync": Variant(arguments={"async_scheduling": False}),
    # Every running request goes through vLLM's output processor at every step.
    "whole": Variant(without=frozenset({"output_gathering"})),
    # vLLM's worker in the scheduler's process, or in its own: as one engine has it that has a GPU
    # to itself, or does not.
    "inside": Variant(arguments={"distributed_executor_backend": "uni"}),
    "apart": Variant(arguments={"distributed_executor_backend": "mp"}),
    # As many tokens a step as vLLM takes where nobody says what it is used for.
    "short": Variant(arguments={"max_num_batched_tokens": 2048}),
    # As many steps under way as vLLM has.
    "two": Variant(without=frozenset({"in_flight_steps"})),
    # Every running sequence asks for memory at every step, as in vLLM.
    "asking": Variant(without=frozenset({"block_allocation"})),
    # The older and the newer of vLLM's model runners, whichever it would choose.
    "runner1": Variant(variables={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    "runner2": Variant(variables={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
}
