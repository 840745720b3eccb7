"""A model's outputs on fixed prompts, and how far a candidate's are from the base's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from transformers import PreTrainedModel

from modnorm.checkpoint.config import positive
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import Displacement, Outputs, Tally

_PADDING = 0
"""Token of the padding; nothing attends to it and no position of it is compared."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts side by side, padded on the right."""

    ids: torch.Tensor
    """Token ids, int64 (rows, columns)."""
    mask: torch.Tensor
    """1 for tokens of a prompt, 0 for padding, int64 (rows, columns)."""

    @property
    def compared(self) -> torch.Tensor:
        """Positions that are compared: all of each prompt except its last, bool (rows, columns).

        What the last position predicts is the answer, of which there is none.
        """
        following = torch.nn.functional.pad(self.mask[:, 1:], (0, 1))
        return following.bool()

    def to(self, device: torch.device) -> "Batch":
        """Return the same on a device."""
        return Batch(self.ids.to(device), self.mask.to(device))


def make_batches(prompts: Sequence[Sequence[int]], size: int) -> Iterator[Batch]:
    """Yield the prompts in order, `size` at a time, each batch as long as its longest prompt."""
    for start in range(0, len(prompts), size):
        rows = [torch.tensor(list(prompt)) for prompt in prompts[start : start + size]]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_PADDING)
        lengths = torch.tensor([len(row) for row in rows])
        yield Batch(ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long())


def compared_positions(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many positions of the prompts are compared."""
    return sum(len(prompt) - 1 for prompt in prompts)


def check_prompts(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], max_tokens: int
) -> None:
    """Refuse prompts that are not measured whole.

    Args:
        checkpoint: The model.
        prompts: Token ids of each prompt.
        max_tokens: Longest prompt that is measured.

    Raises:
        InvalidInputError: a prompt is too short or too long, or is not of the model's vocabulary.
    """
    vocabulary = positive(checkpoint.config, "vocab_size")
    for index, prompt in enumerate(prompts):
        if not 2 <= len(prompt) <= max_tokens:
            raise InvalidInputError(
                f"prompt {index} has {len(prompt)} tokens; prompts of 2 to {max_tokens} are "
                "compared, none is cut",
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


class _Found(Protocol):
    logits: torch.Tensor
    hidden_states: tuple[torch.Tensor, ...]


class _Causal(Protocol):
    def __call__(self, **inputs: object) -> _Found: ...


@torch.inference_mode()
def outputs(model: PreTrainedModel, batch: Batch) -> Outputs:
    """Run a model over a batch; return what it gives at the compared positions.

    Args:
        model: A causal language model in evaluation mode.
        batch: The prompts, on the model's device.
    """
    found = cast("_Causal", model)(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        use_cache=False,
        output_hidden_states=True,
    )
    compared = batch.compared
    states = torch.stack([state[compared] for state in found.hidden_states])
    return Outputs(found.logits[compared], states)


class Probe:
    """What the base says on the prompts, to compare with whatever the model has become since.

    The base's outputs are kept in the host's memory: of the device's, a vocabulary times some
    thousand positions would be a large part.

    Args:
        model: The model, holding the base now.
        prompts: Token ids of each prompt.
        batch_size: Prompts run at a time.
    """

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, batch_size: int
    ) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._batches = [batch.to(self._device) for batch in make_batches(prompts, batch_size)]
        self._base = [self._host(outputs(model, batch)) for batch in self._batches]

    def displacement(self) -> Displacement:
        """Return how far the model is from the base as it is now."""
        tally = Tally()
        for batch, base in zip(self._batches, self._base, strict=True):
            tally.add(base.to(self._device), outputs(self._model, batch))
        return tally.displacement()

    def _host(self, found: Outputs) -> Outputs:
        if self._device.type != "cuda":
            return found
        return Outputs(found.logits.cpu().pin_memory(), found.states.cpu().pin_memory())
