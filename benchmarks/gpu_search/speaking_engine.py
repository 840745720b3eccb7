"""The engine with drawn lengths whose model says recorded texts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from vllm import RequestOutput

from benchmarks.gpu_search.drawn_engine import DrawnEngine
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.drafts.prompt_rows import PromptRows
from modnorm.engines.protocol import Completion
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.serialization import value_of
from modnorm.engines.vllm.speculator import row_of

WORKER = "benchmarks.gpu_search.spoken_texts.SpeakingWorker"


class SpeakingEngine(DrawnEngine):
    """Says the texts of a file; see `DrawnEngine` for the arguments.

    Attributes:
        misspoken: Number of answers that differ from their texts.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        cache_bytes: int | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self._numbers = PromptRows()
        self._spoken = 0
        self._texts: np.ndarray[tuple[int, int, int], np.dtype[np.int16]] | None = None
        self.misspoken = 0
        chosen = {"worker_extension_cls": WORKER, **(arguments or {})}
        super().__init__(checkpoint, settings, cache_bytes, chosen)

    def load_texts(self, path: str) -> None:
        """Open a file of texts."""
        self._texts = np.load(path, mmap_mode="r")
        self._call("modnorm_load_texts", path)

    def speak(self, candidate: int) -> None:
        """Say the texts of a candidate from now on."""
        self._spoken = candidate
        self._call("modnorm_speak", candidate)

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Park the request; afterwards its candidate speaks again."""
        spoken = self._spoken
        with super().parked():
            yield
        self.speak(spoken)

    def _completion(self, request: RequestOutput, index: int) -> Completion:
        if self._texts is not None:
            said = request.outputs[0].token_ids
            text = self._texts[self._spoken % len(self._texts), row_of(request.request_id)]
            self.misspoken += list(said) != text[: len(said)].tolist()
        return super()._completion(request, index)

    def _call(self, method: str, argument: str | int) -> None:
        for rank in self._engine.collective_rpc(method, args=(argument,)):
            value_of(rank)

    def _name(self, prompt: Sequence[int]) -> str:
        if self._feed:
            return super()._name(prompt)
        # As with drafts: the row in the id finds the given text.
        return f"{self._requests}.{self._numbers.row_of(prompt)}"
