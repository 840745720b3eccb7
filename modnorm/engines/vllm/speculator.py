"""Drafts in vLLM's model runners: `PopulationSpeculator` in version 2, `PopulationProposer` in 1.

Request ids name the prompts: `NUMBER.ROW`, to which vLLM appends `-` and random letters.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from modnorm.engines.drafts.matching import AnswerTable, DraftRequest, Followed, Tokens, propose

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.states import RequestState
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner


NO_ROW = -1


def row_of(request_id: str) -> int:
    """Return the row of a request's prompt; `NO_ROW` for a request without one."""
    row = request_id.partition("-")[0].partition(".")[2]
    return int(row) if row else NO_ROW


class PopulationSpeculator:
    """Drafts on the GPU for vLLM's model runner of version 2."""

    supports_mm_inputs = False
    draft_logits = None

    def __init__(self, config: "VllmConfig", device: torch.device) -> None:
        from modnorm.engines.drafts.match_kernels import MatchKernels  # noqa: PLC0415 - only with Triton

        self.model = torch.nn.Module()
        """vLLM prepares the drafting model's communication; there is none."""
        self.table = AnswerTable(device)
        self._kernels: MatchKernels = MatchKernels(
            self.table,
            sequences=config.scheduler_config.max_num_seqs,
            count=config.num_speculative_tokens,
        )
        self._states: RequestState | None = None
        self._request_ids: Sequence[str] = ()
        self._rows = torch.zeros(0, dtype=torch.int32, device=device)

    def attach(self, states: "RequestState") -> None:
        """Read the sequences in a runner's states from now on; compile the kernels."""
        self._states = states
        nothing = torch.tensor([NO_ROW], dtype=torch.int32, device=self.table.tokens.device)
        self._propose(states, nothing, torch.zeros_like(nothing))

    def init_cudagraph_manager(self, *_: object) -> None:
        """Do nothing: drafts need no CUDA graphs."""

    def capture(self) -> None:
        """Do nothing: drafts need no CUDA graphs."""

    def propose(
        self, input_batch: "InputBatch", *_: object, dummy_run: bool = False, **__: object
    ) -> torch.Tensor:
        """Return the drafts of a step's sequences, int64 [sequences, tokens]."""
        states = self._states
        if dummy_run or states is None:
            return self._kernels.drafts[: input_batch.num_reqs]
        rows = self._rows_of(input_batch.req_ids)
        return self._propose(states, rows, input_batch.idx_mapping)

    def _propose(
        self, states: "RequestState", rows: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        texts, lengths = states.all_token_ids.gpu, states.total_len.gpu
        drafts = self._kernels.propose(rows, slots, texts, lengths, states.prompt_len.gpu)
        return drafts.clamp_(min=0)

    def _rows_of(self, request_ids: Sequence[str]) -> torch.Tensor:
        """Return the prompts' rows; most steps have the sequences of the step before."""
        if request_ids != self._request_ids:
            device = self.table.tokens.device
            rows = torch.tensor([row_of(one) for one in request_ids], dtype=torch.int32)
            rows = rows.pin_memory() if device.type == "cuda" else rows
            self._rows = rows.to(device, non_blocking=True)
            self._request_ids = request_ids
        return self._rows


class PopulationProposer:
    """Drafts on the host for vLLM's model runner of version 1, for instance of its CPU build."""

    def __init__(self, config: "VllmConfig") -> None:
        self.table = AnswerTable(torch.device("cpu"))
        self._count = config.num_speculative_tokens
        self._max_length = config.model_config.max_model_len
        self._batch: Any = None
        self._followed: dict[str, Followed] = {}

    def attach(self, runner: "GPUModelRunner") -> None:
        """Read request ids in a runner's batch from now on."""
        self._batch = runner.input_batch

    def load_model(self, *_: object) -> None:
        """Do nothing: there is no drafting model."""

    def propose(
        self, sampled: Sequence[Sequence[int]], lengths: Tokens, tokens: Tokens, **_: object
    ) -> list[list[int]]:
        """Return the draft of each sequence of the batch; none for unfinished prompts."""
        drafts: list[list[int]] = [[] for _ in sampled]
        if self._batch is None:
            return drafts
        places = [
            place for place, new in enumerate(sampled) if new and lengths[place] < self._max_length
        ]
        ids, prompts = self._batch.req_ids, self._batch.num_prompt_tokens
        pending = [
            DraftRequest(
                row_of(ids[place]),
                tokens[place, : lengths[place]],
                int(prompts[place]),
                self._followed.get(ids[place], Followed()),
            )
            for place in places
        ]
        proposed = propose(self.table, pending, self._count)
        # Sequences that are not in this batch begin anew if they return.
        self._followed = {}
        for place, (draft, followed) in zip(places, proposed, strict=True):
            self._followed[ids[place]] = followed
            drafts[place] = draft[: self._max_length - int(lengths[place]) - 1]
        return drafts
