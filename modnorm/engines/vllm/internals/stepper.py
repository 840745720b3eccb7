"""Runs vLLM's steps; processes the output of a request once, after its last step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vllm import RequestOutput
from vllm.v1.engine.llm_engine import LLMEngine

from modnorm.engines.vllm.internals.register_entry import Kind, RegisterEntry, Stage, resolve

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreOutput

_OUTPUT = "vllm.v1.engine:EngineCoreOutput"


class Stepper:
    """Runs steps and returns the requests that finish in them.

    vLLM's `step` passes each new token to its output processor, which returns nothing before the
    last one (`FINAL_ONLY`, no text). This class gathers tokens and passes them once, at the end.
    """

    def __init__(self, engine: LLMEngine, *, gather: bool) -> None:
        self._engine = engine
        self._gather = gather
        self._tokens: defaultdict[str, list[int]] = defaultdict(list)
        """Gathered tokens of unfinished requests."""

    def step(self) -> list[RequestOutput]:
        """Run the model once; return the requests that have finished."""
        if not self._gather:
            return [output for output in self._engine.step() if output.finished]
        finished = []
        for output in self._engine.engine_core.get_output().outputs:
            self._tokens[output.request_id] += output.new_token_ids
            if output.finish_reason is not None:
                output.new_token_ids = self._tokens.pop(output.request_id)
                finished.append(output)
        return _processed(self._engine, finished) if finished else []

    def forget(self) -> Mapping[str, Sequence[int]]:
        """Return and drop the tokens of aborted requests, by vLLM's request id."""
        dropped, self._tokens = self._tokens, defaultdict(list)
        return dropped


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
