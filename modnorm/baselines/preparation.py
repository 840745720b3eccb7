"""The preparation of a generator: once, supervised, in fp32 (paper, app. E.1; facts 9.3).

The model is trained by ordinary gradients for a few epochs at a time, and is set back; on the way
the generator learns to propose perturbations after which a step of MeZO lowers the loss. Noise is
the portable one by tensor and element, where the published code draws one stream over all tensors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch.func import functional_call
from transformers import PreTrainedModel

from modnorm.baselines.generator import Generator, features_of
from modnorm.baselines.mezo import SEED_STRIDE
from modnorm.baselines.zo import PREPARATION_BATCH, normaliser, tensor_weights
from modnorm.checkpoint.layout import Layout
from modnorm.errors import InvalidInputError
from modnorm.noise import get_scheme

_IGNORED = -100
"""Label of a token that is no target."""

Weights = Mapping[str, torch.Tensor]
"""Parameters of the model by their names in the checkpoint."""


@dataclass(frozen=True, slots=True)
class PreparationSettings:
    """The settings of the paper; the model's own training is the published one."""

    epochs: int = 15
    batch: int = PREPARATION_BATCH
    seed: int = 38
    rate: float = 0.01
    """Of the generator."""
    epsilon: float = 1e-3
    step: float = 1e-6
    """Learning rate of the step whose loss the generator learns from."""
    model_rate: float = 1e-5
    momentum: float = 0.8
    clip: float = 1.0
    """Largest norm of the model's gradient."""
    cycle: int = 5
    """Epochs after which the model is set back."""
    max_length: int = 2048
    """Tokens of an example; longer ones are refused."""
    noise: str = "portable-v1"


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the answer that is to follow, as token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def solution_text(solution: str) -> str:
    """Return the answer that an example of Countdown teaches: nothing thought, then the answer."""
    return f"<think></think>\n<answer>{solution}</answer>"


def prepare(
    model: PreTrainedModel,
    layout: Layout,
    examples: Sequence[Example],
    settings: PreparationSettings | None = None,
    *,
    on_batch: Callable[[int, int], None] = lambda _done, _total: None,
) -> Generator:
    """Return a generator that is prepared on a model; the model is left as it was.

    Args:
        model: In fp32; its parameters are named as in the checkpoint.
        layout: Its physical tensors.
        examples: What it is prepared on.
        settings: The paper's when absent.
        on_batch: Told after each batch how many are done, and of how many.

    Raises:
        InvalidInputError: there are no examples, or one is too long.
    """
    chosen = settings or PreparationSettings()
    _check(examples, chosen)
    on_gpu = model.device.type == "cuda"
    with torch.random.fork_rng([model.device] if on_gpu else []):
        torch.manual_seed(chosen.seed)  # dropout draws from what the whole process shares
        return _Preparation(model, layout, chosen).run(examples, on_batch)


def preparation_record(settings: PreparationSettings, **made_from: object) -> dict[str, object]:
    """Return what a generator's file says of how it was made."""
    return {**asdict(settings), **made_from}


class _Preparation:
    """One preparation on its way."""

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
                    optimiser = self._set_back()
                for place, batch in enumerate(_batches(examples, epoch, settings)):
                    done = batches * epoch + place
                    self._teach(batch, settings.seed * SEED_STRIDE + done)
                    share = (done % (batches * settings.cycle)) / (batches * settings.cycle)
                    self._train(batch, optimiser, settings.model_rate * (1 - share))
                    on_batch(done + 1, batches * settings.epochs)
        finally:
            self._set_back()
            self._model.train(training)
        return self._generator

    def _teach(self, batch: Sequence[Example], seed: int) -> None:
        """Take one step of the generator: the loss after a step of MeZO that it proposed."""
        raw = self._generator(features_of(self._moments(), self._losses, self._amplitudes))
        known = raw.detach().tolist()
        directions = self._directions(seed, raw * normaliser(known, self._omega))
        epsilon = self._settings.epsilon
        with torch.no_grad():
            plus, minus = (
                float(self._loss(batch, self._moved(directions, way * epsilon))) for way in (1, -1)
            )
        slope = (plus - minus) / (2 * epsilon)
        loss = self._loss(batch, self._moved(directions, -self._settings.step * slope))
        # The model's weights are detached in `_moved`: this reaches the generator alone.
        self._learning.zero_grad()
        torch.autograd.backward(loss)
        self._learning.step()
        self._losses, self._amplitudes = (plus, minus), known

    def _train(
        self, batch: Sequence[Example], optimiser: torch.optim.Optimizer, rate: float
    ) -> None:
        """Take one ordinary step of the model."""
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        torch.autograd.backward(self._loss(batch, self._weights))
        torch.nn.utils.clip_grad_norm_(list(self._weights.values()), self._settings.clip)
        optimiser.step()
        optimiser.zero_grad()

    def _set_back(self) -> torch.optim.Optimizer:
        """Give the model its first weights again, and an optimiser that knows nothing."""
        with torch.no_grad():
            for name, value in self._weights.items():
                value.copy_(self._original[name])
        return torch.optim.SGD(
            self._weights.values(),
            lr=self._settings.model_rate,
            momentum=self._settings.momentum,
        )

    @torch.no_grad()
    def _moments(self) -> list[tuple[float, float]]:
        found = []
        for tensor in self._layout:
            whole = torch.cat([self._weights[part.name] for part in tensor.parts])
            variance, mean = torch.var_mean(whole)
            found.append((float(mean), float(variance)))
        return found

    def _directions(self, seed: int, amplitudes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return noise times amplitude of each parameter, with the amplitudes' gradients."""
        scheme = get_scheme(self._settings.noise)
        found: dict[str, torch.Tensor] = {}
        for tensor, amplitude in zip(self._layout, amplitudes, strict=True):
            device = self._weights[tensor.parts[0].name].device
            noise = scheme.sample(
                seed, tensor.name, tensor.shape, dtype=torch.float32, device=device
            )
            rows = [part.rows for part in tensor.parts]
            for part, piece in zip(tensor.parts, torch.split(noise, rows), strict=True):
                found[part.name] = piece * amplitude.to(device)
        return found

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
        raise InvalidInputError(
            "there are no examples", field="examples", remedy="give at least one"
        )
    longest = max(len(one.prompt) + len(one.answer) for one in examples)
    if longest > settings.max_length:
        raise InvalidInputError(
            f"an example has {longest} tokens, {settings.max_length} may",
            field="examples",
            remedy="leave long ones out",
        )


def _batches(
    examples: Sequence[Example], epoch: int, settings: PreparationSettings
) -> Iterator[list[Example]]:
    """Yield the batches of an epoch, in an order of its own."""
    random = torch.Generator().manual_seed(settings.seed + epoch)
    order = torch.randperm(len(examples), generator=random).tolist()
    for start in range(0, len(order), settings.batch):
        yield [examples[index] for index in order[start : start + settings.batch]]


def _padded(batch: Sequence[Example], device: torch.device) -> dict[str, torch.Tensor]:
    """Return token ids, mask and labels, padded on the right; prompts are no targets."""
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
