"""vLLM's worker with given answers: the model computes as always, the texts are recorded ones.

A model with random weights says nothing that a draft could predict. Here the logits of each step
are changed on the device, so that the next token is that of a recorded text. All contenders of a
measurement use this worker, with drafts and without.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu_search.published_worker import PublishedWorker
from modnorm.engines.vllm.serialization import Answer, Value, answer
from modnorm.engines.vllm.speculator import row_of
from modnorm.engines.vllm.worker_extension import CandidateWorker

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner


class SpokenTexts:
    """The texts of one candidate, by row of the prompt, on vLLM's model runner of version 2.

    Args:
        runner: The model runner.
        shape: Rows, and tokens of the longest text.
        row_of: Returns the row of a request's prompt from its id.
    """

    def __init__(
        self,
        runner: Any,  # noqa: ANN401 - vLLM's
        shape: tuple[int, int],
        row_of: Callable[[str], int],
    ) -> None:
        self._row_of = row_of
        self.texts = torch.zeros(shape, dtype=torch.int64, device=runner.device)
        self._states = runner.req_states
        self._rows = torch.zeros(runner.max_num_reqs, dtype=torch.int64, device=runner.device)
        self._request_ids: list[str] = []
        self._batch: Any = None
        self._wrap(runner)

    def _wrap(self, runner: Any) -> None:  # noqa: ANN401 - vLLM's
        from benchmarks.gpu_search.speech_kernel import (  # noqa: PLC0415 - only with Triton
            make_certain,
        )

        sample, make = runner.sample, runner.model.compute_logits

        def sample_step(hidden: torch.Tensor, batch: Any, *others: object) -> object:  # noqa: ANN401 - vLLM's
            self._batch = batch
            return sample(hidden, batch, *others)

        def make_logits(*arguments: object, **named: object) -> torch.Tensor:
            logits: torch.Tensor = make(*arguments, **named)
            self._find_rows()
            prompts = self._states.prompt_len.gpu
            return make_certain(logits, self._batch, prompts, self._rows, self.texts)

        runner.sample = sample_step
        object.__setattr__(runner.model, "compute_logits", make_logits)

    def _find_rows(self) -> None:
        """Update the row of each slot, if the step has other sequences than the last."""
        batch = self._batch
        if batch.req_ids != self._request_ids:
            rows = torch.tensor([self._row_of(one) for one in batch.req_ids]).pin_memory()
            # A copy of other memory would wait for the step to end, at each end of a sequence.
            self._rows[batch.idx_mapping.long()] = rows.to(self._rows.device, non_blocking=True)
            self._request_ids = batch.req_ids


class _TextWorker:
    """Says given texts; mixed into vLLM's worker class."""

    spoken: SpokenTexts
    recorded: "np.memmap[Any, Any]"

    if TYPE_CHECKING:
        model_runner: GPUModelRunner

    def modnorm_load_texts(self, path: str) -> Answer:
        """Open a file of texts: int16 [candidates, rows, tokens]."""

        def load() -> Value:
            self.recorded = np.load(Path(path), mmap_mode="r")
            _, rows, tokens = self.recorded.shape
            self.spoken = SpokenTexts(
                self.model_runner, (rows, tokens), lambda one: self.modnorm_row(one) % rows
            )
            return None

        return answer(load)

    def modnorm_speak(self, candidate: int) -> Answer:
        """Say the texts of a candidate from now on."""

        def speak() -> Value:
            texts = np.array(self.recorded[candidate % len(self.recorded)], dtype=np.int64)
            self.spoken.texts.copy_(torch.from_numpy(texts))
            return None

        return answer(speak)

    def modnorm_row(self, request_id: str) -> int:
        """Return the row of a request's prompt."""
        return row_of(request_id)


class SpeakingWorker(_TextWorker, CandidateWorker):
    """The project's worker, which says given texts."""


class PublishedSpeaker(_TextWorker, PublishedWorker):
    """The published worker, which says given texts."""

    def modnorm_row(self, request_id: str) -> int:
        """Return the row of a request's prompt: vLLM numbers requests from 0."""
        return int(request_id.partition("-")[0])
