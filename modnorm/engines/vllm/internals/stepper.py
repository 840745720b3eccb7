"""Runs vLLM's steps; processes the output of a request once, after its last step."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm import RequestOutput
from vllm.v1.engine.llm_engine import LLMEngine

from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage, resolve

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreOutput

_OUTPUT = "vllm.v1.engine:EngineCoreOutput"


@dataclass
class Outputs:
    """Outputs that the caller has not received."""

    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Tokens of unfinished requests."""
    finished: list[RequestOutput] = field(default_factory=list)
    on_tokens: Callable[[str, Sequence[int]], None] | None = None
    """Gets the name of a request and its new tokens, if tokens are gathered."""


class Stepper:
    """Runs steps and returns the requests that finish in them.

    vLLM's `step` passes each new token to its output processor, which returns nothing before the
    last one (`FINAL_ONLY`, no text). This class gathers tokens and passes them once, at the end.
    """

    def __init__(self, engine: LLMEngine, *, gather: bool) -> None:
        self._engine = engine
        self._gather = gather
        self._pending = Outputs()

    def step(self) -> list[RequestOutput]:
        """Run the model once; return the requests that have finished."""
        if self._pending.finished:
            pending, self._pending.finished = self._pending.finished, []
            return pending
        if not self._gather:
            return [output for output in self._engine.step() if output.finished]
        finished = []
        for output in self._engine.engine_core.get_output().outputs:
            tokens = self._pending.tokens[output.request_id]
            tokens += output.new_token_ids
            if self._pending.on_tokens and output.new_token_ids:
                self._pending.on_tokens(output.request_id, output.new_token_ids)
            if output.finish_reason is not None:
                output.new_token_ids = self._pending.tokens.pop(output.request_id)
                finished.append(output)
        return _processed(self._engine, finished) if finished else []

    def pass_tokens(self, on_tokens: Callable[[str, Sequence[int]], None]) -> None:
        """Call a function with the new tokens of requests until `forget`."""
        self._pending.on_tokens = on_tokens

    def forget(self) -> Mapping[str, Sequence[int]]:
        """Return and drop the tokens of aborted requests, by vLLM's request id."""
        dropped, self._pending = self._pending, Outputs()
        return dropped.tokens

    def suspend(self, finished: list[RequestOutput]) -> Outputs:
        """Return all outputs and start empty for other requests."""
        pending, self._pending = self._pending, Outputs()
        pending.finished += finished
        return pending

    def resume(self, pending: Outputs) -> None:
        """Continue with suspended outputs."""
        self._pending = pending


def _processed(engine: LLMEngine, outputs: "list[EngineCoreOutput]") -> list[RequestOutput]:
    processed: list[RequestOutput] = engine.output_processor.process_outputs(
        outputs
    ).request_outputs
    return processed


def _processes_outputs(engine: LLMEngine) -> bool:
    """The output processor accepts several tokens at once, here of an unknown request."""
    output = resolve(_OUTPUT)(request_id="probe", new_token_ids=[1, 2])
    return output.finish_reason is None and not _processed(engine, [output])


OUTPUT_GATHERING = RegisterEntry(
    name="output_gathering",
    purpose="Calls vLLM's output processor once a request, not once a token.",
    kind=Kind.OPTIMISATION,
    stage=Stage.ENGINE,
    vllm_names=(".engine_core.get_output", ".output_processor.process_outputs", _OUTPUT),
    otherwise="vLLM's own `step`",
    removable_when="vLLM's step skips unfinished `FINAL_ONLY` requests",
    self_test=_processes_outputs,
)
