"""The distance between a perturbed model's outputs and the base's: logits and hidden states."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel

from modnorm.checkpoint.pretrained import arithmetic_dtype, load_pretrained
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name
from modnorm.engines.protocol import engine_failures
from modnorm.engines.transformers_engine import weight_views
from modnorm.errors import CandidateError, EngineError, InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor

_ROWS = 128
"""Positions whose distributions are in fp32 at once, to bound memory."""


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """A model's outputs at some positions."""

    logits: torch.Tensor
    """Next-token logits, shape (positions, vocabulary)."""
    states: torch.Tensor
    """Hidden states, shape (states, positions, hidden): the embeddings, then each layer's output.

    The last is the input of the head, after the final norm.
    """

    def to(self, device: torch.device) -> "ModelOutputs":
        return ModelOutputs(
            self.logits.to(device, non_blocking=True), self.states.to(device, non_blocking=True)
        )


@dataclass(frozen=True, slots=True)
class Displacement:
    """Distance between one perturbed model and the base, over all compared positions."""

    kl: float
    """Mean over positions of the symmetric KL divergence of next-token distributions, in nats."""
    hidden: float
    """Relative RMS of the last hidden state: sqrt(sum |h' - h|^2 / sum |h|^2)."""
    hidden_rms: float
    """RMS of the change of the last hidden state, over positions and coordinates."""
    states: tuple[float, ...]
    """Relative RMS of every hidden state; the last is `hidden`."""

    @property
    def is_finite(self) -> bool:
        """Whether every figure is a number."""
        return all(map(math.isfinite, (self.kl, self.hidden, self.hidden_rms, *self.states)))


def symmetric_kl(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return 1/2 [KL(p || q) + KL(q || p)] by position: exactly symmetric, 0 on equal logits."""
    pairs = zip(torch.split(base, _ROWS), torch.split(other, _ROWS), strict=True)
    return torch.cat([_symmetric_kl(one, two) for one, two in pairs])


def _symmetric_kl(base: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    log_p, log_q = base.float().log_softmax(-1), other.float().log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1).double() / 2


@torch.inference_mode()
def displacement_of(batches: Iterable[tuple[ModelOutputs, ModelOutputs]]) -> Displacement:
    """Return the displacement over all positions of some batches, in float64.

    Each batch has the base's outputs and the perturbed model's.
    """
    positions = coordinates = 0
    kl, moved, length = 0.0, np.zeros(1), np.zeros(1)
    for base, other in batches:
        positions += len(base.logits)
        coordinates += base.states[-1].numel()
        kl += float(symmetric_kl(base.logits, other.logits).sum())
        pairs = zip(base.states, other.states, strict=True)
        moved = moved + [float((two.double() - one.double()).square().sum()) for one, two in pairs]
        length = length + [float(one.double().square().sum()) for one in base.states]
    with np.errstate(divide="ignore", invalid="ignore"):
        states = np.sqrt(moved / length).tolist()
    return Displacement(
        kl=kl / positions,
        hidden=states[-1],
        hidden_rms=math.sqrt(moved[-1] / coordinates),
        states=tuple(states),
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of prompts, padded on the right."""

    ids: torch.Tensor
    """Token ids, int64 (rows, columns); padding is 0 and gets no attention."""
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
        return Batch(self.ids.to(device), self.mask.to(device))


def make_batches(prompts: Sequence[Sequence[int]], size: int) -> Iterator[Batch]:
    """Yield batches of `size` prompts in order, each padded to its longest prompt."""
    for start in range(0, len(prompts), size):
        rows = [torch.tensor(list(prompt)) for prompt in prompts[start : start + size]]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        yield Batch(ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long())


def compared_positions(prompts: Sequence[Sequence[int]]) -> int:
    return sum(len(prompt) - 1 for prompt in prompts)


def check_prompts(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], max_tokens: int
) -> None:
    """Refuse prompts that cannot be measured completely."""
    for index, prompt in enumerate(prompts):
        if not 2 <= len(prompt) <= max_tokens:
            raise InvalidInputError(
                f"prompt {index} has {len(prompt)} tokens; prompts need 2 to {max_tokens} tokens, "
                "since none is cut",
                field="task.selection",
                remedy="name rows with shorter prompts",
            )
    check_fit(prompts, 0, checkpoint)


@torch.inference_mode()
def outputs(model: PreTrainedModel, batch: Batch) -> ModelOutputs:
    """Run a model on a batch and return its outputs at the compared positions."""
    output = model(
        input_ids=batch.ids, attention_mask=batch.mask, use_cache=False, output_hidden_states=True
    )
    compared = batch.compared
    states = torch.stack([state[compared] for state in output.hidden_states])
    return ModelOutputs(output.logits[compared], states)


ATTENTION = "eager"
"""Attention implementation of the published measurements."""


def environment(checkpoint: Checkpoint, device: torch.device) -> dict[str, str]:
    """Return the properties that may affect the rounding of measurements, for the record."""
    on_gpu = device.type == "cuda"
    weights = CheckpointWeights(checkpoint).dtype
    return {
        "arithmetic": dtype_name(arithmetic_dtype(weights, device)),
        "attention": ATTENTION,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "dtype": dtype_name(weights),
        "threads": str(torch.get_num_threads()),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


class DisplacementMeter:
    """Measures candidates of one model; it holds a pristine copy and the base's outputs.

    The outputs are stored in the host's memory, since a vocabulary times some thousand positions
    would take a large part of the device's.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompts: list[list[int]],
        *,
        batch_size: int,
        device: torch.device,
    ) -> None:
        stored = CheckpointWeights(checkpoint)
        arithmetic = arithmetic_dtype(stored.dtype, device)
        with engine_failures(f"loading {checkpoint.name}"):
            model = load_pretrained(checkpoint, dtype=arithmetic, attention=ATTENTION)
            model.eval().requires_grad_(requires_grad=False)
            torch.nn.Module.to(model, device)
            self._weights = CandidateWeights(
                stored.layout,
                weight_views(stored.layout, model, arithmetic),
                model_digest=checkpoint.digest,
                dtype=stored.dtype,
            )
            self._model, self._device = model, device
            self._batches = [batch.to(device) for batch in make_batches(prompts, batch_size)]
            self._base = [self._host(outputs(model, batch)) for batch in self._batches]

    def displacement(self, descriptor: Descriptor, scale_map: ScaleMap) -> Displacement:
        """Return the displacement of a candidate from the base, then restore the base."""
        with engine_failures("measuring a candidate"):
            if not self._weights.is_pristine():
                raise EngineError(
                    "the weights are not the base: something else wrote to them",
                    remedy="start the command again",
                )
            try:
                self._weights.apply(descriptor, scale_map)
                displacement = displacement_of(
                    (base.to(self._device), outputs(self._model, batch))
                    for batch, base in zip(self._batches, self._base, strict=True)
                )
            finally:
                self._weights.restore()
        if not displacement.is_finite:
            raise CandidateError(
                f"the outputs of seed {descriptor.seed} at {descriptor.radius:g} are not finite",
                field="radii",
                remedy="remove the radius",
            )
        return displacement

    def _host(self, results: ModelOutputs) -> ModelOutputs:
        if self._device.type != "cuda":
            return results
        return ModelOutputs(results.logits.cpu().pin_memory(), results.states.cpu().pin_memory())
