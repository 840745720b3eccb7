"""Steps of vLLM, without what nobody asks for at every one of them."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from modnorm.engines.vllm.start import Request, RunningEngine


class _CoreOutput(Protocol):
    request_id: str
    new_token_ids: list[int]
    finish_reason: object | None


class _CoreOutputs(Protocol):
    outputs: Sequence[_CoreOutput]


class _Processed(Protocol):
    request_outputs: list[Request]


@dataclass
class Said:
    """What running requests have said."""

    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Tokens of those that go on."""
    ended: list[Request] = field(default_factory=list)
    """Requests that have ended, and that nobody was told of."""


class Steps:
    """Takes steps and gives the requests that end in them.

    vLLM's own `step` takes every running request's new token through its output processor, which
    makes nothing of it before the last one (`FINAL_ONLY`, no text). Here tokens are gathered, and
    a request goes through it once, with all of them. Where vLLM does not offer the two halves of
    its step, the whole is taken.

    Args:
        engine: vLLM, its core in this process.
        whole: Take vLLM's own steps all the same, to compare.
    """

    def __init__(self, engine: RunningEngine, *, whole: bool = False) -> None:
        processor = getattr(engine, "output_processor", None)
        halves = (
            getattr(engine.engine_core, "get_output", None),
            getattr(processor, "process_outputs", None),
        )
        self._whole = engine.step
        self._halves = cast(
            "tuple[Callable[[], _CoreOutputs], Callable[[list[_CoreOutput]], _Processed]] | None",
            halves if all(map(callable, halves)) and not whole else None,
        )
        self._said = Said()

    def take(self) -> list[Request]:
        """Run the model once; return the requests that have ended."""
        if self._said.ended:
            known, self._said.ended = self._said.ended, []
            return known
        if self._halves is None:
            return [one for one in self._whole() if one.finished]
        run, process = self._halves
        ended = []
        for one in run().outputs:
            tokens = self._said.tokens[one.request_id]
            tokens += one.new_token_ids
            if one.finish_reason is not None:
                one.new_token_ids = self._said.tokens.pop(one.request_id)
                ended.append(one)
        return process(ended).request_outputs if ended else []

    def take_one_more(self) -> None:
        """Run the model once; of requests that have ended the next step tells."""
        ended = self.take()
        self._said.ended += ended

    def forget(self) -> None:
        """Drop the tokens of requests that do not go on."""
        self._said = Said()

    def leave(self, ended: list[Request]) -> Said:
        """Give away what was said, for other requests to begin.

        Args:
            ended: Requests that have ended since, of which the next step tells.
        """
        said, self._said = self._said, Said()
        said.ended += ended
        return said

    def come_back(self, said: Said) -> None:
        """Go on with what was given away."""
        self._said = said
