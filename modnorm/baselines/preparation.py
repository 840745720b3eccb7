"""The supervised preparation of a generator, in fp32 (paper, app. D.1; facts 9.3).

The model is trained by gradients for a few epochs and then reset, several times. Meanwhile the
generator learns to propose amplitudes with which a step of MeZO lowers the loss. Noise is
`portable-v1` by tensor and element; the published code draws one stream over all tensors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.func import functional_call
from transformers import PreTrainedModel

from modnorm.baselines.generator import Generator, features_of
from modnorm.baselines.updates import PREPARATION_BATCH, SEED_STRIDE, normaliser, tensor_weights
from modnorm.checkpoint.families import Layout
from modnorm.errors import InvalidInputError
from modnorm.noise import get_scheme

_IGNORED = -100
"""Label of a token that is not a target."""

Weights = Mapping[str, torch.Tensor]
"""Parameters of the model by their names in the checkpoint."""


@dataclass(frozen=True, slots=True)
class PreparationSettings:
    """The paper's settings; those of the model's training are the published ones."""

    epochs: int = 15
    batch: int = PREPARATION_BATCH
    seed: int = 38
    rate: float = 0.01
    """Learning rate of the generator."""
    epsilon: float = 1e-3
    step: float = 1e-6
    """Learning rate of the MeZO step from whose loss the generator learns."""
    model_rate: float = 1e-5
    momentum: float = 0.8
    clip: float = 1.0
    """Largest norm of the model's gradient."""
    cycle: int = 5
    """Epochs after which the model is reset."""
    max_length: int = 2048
    """Tokens of an example; longer examples are refused."""
    noise: str = "portable-v1"


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its target answer, as token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def solution_text(solution: str) -> str:
    """Return the target answer of a Countdown example: empty thoughts, then the solution."""
    return f"<think></think>\n<answer>{solution}</answer>"


def prepare(
    model: PreTrainedModel,
    layout: Layout,
    examples: Sequence[Example],
    settings: PreparationSettings | None = None,
    *,
    on_batch: Callable[[int, int], None] = lambda _done, _total: None,
) -> Generator:
    """Return a generator prepared on a model; restore the model afterwards."""
    used = settings or PreparationSettings()
    _check(examples, used)
    on_gpu = model.device.type == "cuda"
    with torch.random.fork_rng([model.device] if on_gpu else []):
        torch.manual_seed(used.seed)  # dropout uses the process-wide generator
        return _Preparation(model, layout, used).run(examples, on_batch)


class _Preparation:
    def __init__(
        self, model: PreTrainedModel, layout: Layout, settings: PreparationSettings
    ) -> None:
        self._model = model
        self._layout = layout
        self._settings = settings
        self._generator = Generator(layout, seed=settings.seed)
        self._learning = torch.optim.SGD(self._generator.parameters(), lr=settings.rate)
        self._weights: Weights = dict(model.named_parameters())
        self._original = {name: value.detach().clone() for name, value in self._weights.items()}
        shapes = {tensor.name: tensor.shape for tensor in layout}
        self._omega = tensor_weights(shapes, settings.batch)
        self._losses = (0.0, 0.0)
        self._amplitudes: Sequence[float] = (1.0,) * len(layout)

    def run(self, examples: Sequence[Example], on_batch: Callable[[int, int], None]) -> Generator:
        settings = self._settings
        batches = -(-len(examples) // settings.batch)
        training = self._model.training
        self._model.train()
        try:
            for epoch in range(settings.epochs):
                if epoch % settings.cycle == 0:
                    optimiser = self._reset()
                for index, batch in enumerate(_batches(examples, epoch, settings)):
                    done = batches * epoch + index
                    self._train_generator(batch, settings.seed * SEED_STRIDE + done)
                    share = (done % (batches * settings.cycle)) / (batches * settings.cycle)
                    self._train_model(batch, optimiser, settings.model_rate * (1 - share))
                    on_batch(done + 1, batches * settings.epochs)
        finally:
            self._reset()
            self._model.train(training)
        return self._generator

    def _train_generator(self, batch: Sequence[Example], seed: int) -> None:
        """Train the generator by the loss after the MeZO step that it proposes."""
        raw = self._generator(features_of(self._moments(), self._losses, self._amplitudes))
        amplitudes = raw.detach().tolist()
        directions = self._directions(seed, raw * normaliser(amplitudes, self._omega))
        epsilon = self._settings.epsilon
        with torch.no_grad():
            plus, minus = (
                float(self._loss(batch, self._moved(directions, way * epsilon))) for way in (1, -1)
            )
        slope = (plus - minus) / (2 * epsilon)
        loss = self._loss(batch, self._moved(directions, -self._settings.step * slope))
        # `_moved` detaches the model's weights, so gradients reach only the generator.
        self._learning.zero_grad()
        torch.autograd.backward(loss)
        self._learning.step()
        self._losses, self._amplitudes = (plus, minus), amplitudes

    def _train_model(
        self, batch: Sequence[Example], optimiser: torch.optim.Optimizer, rate: float
    ) -> None:
        """Train the model by one gradient step."""
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        torch.autograd.backward(self._loss(batch, self._weights))
        torch.nn.utils.clip_grad_norm_(list(self._weights.values()), self._settings.clip)
        optimiser.step()
        optimiser.zero_grad()

    def _reset(self) -> torch.optim.Optimizer:
        """Restore the model's original weights; return a new optimiser."""
        with torch.no_grad():
            for name, value in self._weights.items():
                value.copy_(self._original[name])
        return torch.optim.SGD(
            self._weights.values(), lr=self._settings.model_rate, momentum=self._settings.momentum
        )

    @torch.no_grad()
    def _moments(self) -> list[tuple[float, float]]:
        moments = []
        for tensor in self._layout:
            whole = torch.cat([self._weights[part.name] for part in tensor.parts])
            variance, mean = torch.var_mean(whole)
            moments.append((float(mean), float(variance)))
        return moments

    def _directions(self, seed: int, amplitudes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return noise times amplitude for each parameter, differentiable by the amplitudes."""
        scheme = get_scheme(self._settings.noise)
        directions: dict[str, torch.Tensor] = {}
        for tensor, amplitude in zip(self._layout, amplitudes, strict=True):
            device = self._weights[tensor.parts[0].name].device
            noise = scheme.sample(
                seed, tensor.name, tensor.shape, dtype=torch.float32, device=device
            )
            rows = [part.rows for part in tensor.parts]
            for part, piece in zip(tensor.parts, torch.split(noise, rows), strict=True):
                directions[part.name] = piece * amplitude.to(device)
        return directions

    def _moved(self, directions: Mapping[str, torch.Tensor], length: float) -> Weights:
        return {
            name: value.detach() + length * directions[name]
            for name, value in self._weights.items()
        }

    def _loss(self, batch: Sequence[Example], weights: Weights) -> torch.Tensor:
        """Return the mean cross-entropy of the answers' tokens."""
        inputs = _padded(batch, self._model.device)
        output = functional_call(self._model, dict(weights), kwargs=inputs, tie_weights=True)
        loss: torch.Tensor = output.loss
        return loss


def _check(examples: Sequence[Example], settings: PreparationSettings) -> None:
    if not examples:
        raise InvalidInputError("there are no examples", field="examples")
    longest = max(len(one.prompt) + len(one.answer) for one in examples)
    if longest > settings.max_length:
        raise InvalidInputError(
            f"an example has {longest} tokens, more than {settings.max_length}", field="examples"
        )


def _batches(
    examples: Sequence[Example], epoch: int, settings: PreparationSettings
) -> Iterator[list[Example]]:
    """Yield the batches of an epoch, shuffled by its number."""
    random = torch.Generator().manual_seed(settings.seed + epoch)
    order = torch.randperm(len(examples), generator=random).tolist()
    for start in range(0, len(order), settings.batch):
        yield [examples[index] for index in order[start : start + settings.batch]]


def _padded(batch: Sequence[Example], device: torch.device) -> dict[str, torch.Tensor]:
    """Return token ids, mask and labels, padded on the right; prompts are not targets."""
    longest = max(len(one.prompt) + len(one.answer) for one in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, _IGNORED)
    for row, one in enumerate(batch):
        start, end = len(one.prompt), len(one.prompt) + len(one.answer)
        ids[row, :end] = torch.tensor(one.prompt + one.answer)
        mask[row, :end] = 1
        labels[row, start:end] = torch.tensor(one.answer)
    moved = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: value.to(device) for name, value in moved.items()}
