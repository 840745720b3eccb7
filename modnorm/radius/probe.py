"""A model's outputs on fixed prompts, compared with those of its base."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from transformers import PreTrainedModel

from modnorm.checkpoint.config import positive
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import Displacement, DisplacementSums, ModelOutputs

_PADDING = 0
"""Padding token; it gets no attention and its positions are not compared."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of prompts, padded on the right."""

    ids: torch.Tensor
    """Token ids, int64 (rows, columns)."""
    mask: torch.Tensor
    """1 for tokens of a prompt, 0 for padding, int64 (rows, columns)."""

    @property
    def compared(self) -> torch.Tensor:
        """Compared positions, bool (rows, columns): all of each prompt except its last.

        The last position predicts the answer, which does not exist.
        """
        following = torch.nn.functional.pad(self.mask[:, 1:], (0, 1))
        return following.bool()

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch(self.ids.to(device), self.mask.to(device))


def make_batches(prompts: Sequence[Sequence[int]], size: int) -> Iterator[Batch]:
    """Yield batches of `size` prompts in order, each padded to its longest prompt."""
    for start in range(0, len(prompts), size):
        rows = [torch.tensor(list(prompt)) for prompt in prompts[start : start + size]]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_PADDING)
        lengths = torch.tensor([len(row) for row in rows])
        yield Batch(ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long())


def compared_positions(prompts: Sequence[Sequence[int]]) -> int:
    """Return the number of compared positions of the prompts."""
    return sum(len(prompt) - 1 for prompt in prompts)


def check_prompts(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], max_tokens: int
) -> None:
    """Refuse prompts that cannot be measured completely.

    Raises:
        InvalidInputError: a prompt is too short or too long, or has a token outside of the model's
            vocabulary.
    """
    vocabulary = positive(checkpoint.config, "vocab_size")
    for index, prompt in enumerate(prompts):
        if not 2 <= len(prompt) <= max_tokens:
            raise InvalidInputError(
                f"prompt {index} has {len(prompt)} tokens; prompts need 2 to {max_tokens} tokens, "
                "since none is cut",
                field="task.selection",
                remedy="name rows with shorter prompts",
            )
        if not all(0 <= token < vocabulary for token in prompt):
            raise InvalidInputError(
                f"prompt {index} has a token id outside of 0 to {vocabulary - 1}",
                field="task.selection",
                remedy="encode the prompts with the model's own tokenizer",
            )
    check_fit(prompts, 0, checkpoint)


class _ModelOutput(Protocol):
    logits: torch.Tensor
    hidden_states: tuple[torch.Tensor, ...]


class _CausalModel(Protocol):
    def __call__(self, **inputs: object) -> _ModelOutput: ...


@torch.inference_mode()
def outputs(model: PreTrainedModel, batch: Batch) -> ModelOutputs:
    """Run a model on a batch and return its outputs at the compared positions."""
    output = cast("_CausalModel", model)(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        use_cache=False,
        output_hidden_states=True,
    )
    compared = batch.compared
    states = torch.stack([state[compared] for state in output.hidden_states])
    return ModelOutputs(output.logits[compared], states)


class Probe:
    """The base's outputs on the prompts, to compare with later weights of the same model.

    The outputs are stored in the host's memory, since a vocabulary times some thousand positions
    would take a large part of the device's.
    """

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, batch_size: int
    ) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._batches = [batch.to(self._device) for batch in make_batches(prompts, batch_size)]
        self._base = [self._host(outputs(model, batch)) for batch in self._batches]

    def displacement(self) -> Displacement:
        """Return the displacement of the model's current weights from the base."""
        sums = DisplacementSums()
        for batch, base in zip(self._batches, self._base, strict=True):
            sums.add(base.to(self._device), outputs(self._model, batch))
        return sums.displacement()

    def _host(self, results: ModelOutputs) -> ModelOutputs:
        if self._device.type != "cuda":
            return results
        return ModelOutputs(results.logits.cpu().pin_memory(), results.states.cpu().pin_memory())
