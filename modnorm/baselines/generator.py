"""The generator of the ZO-Finetuner: it proposes an amplitude for each tensor (facts 9.3).

Each tensor has a small network, 5 -> 64 -> 1 with tanh. Its inputs are the tensor's mean and
variance, the losses of the last step's two sides, and its own last output. The magnitude of its
output is the amplitude. The published generator has a network for each tensor of transformers, in
fp16; this one has a network for each physical tensor, in fp32.
"""

import base64
from collections.abc import Mapping, Sequence
from math import sqrt

import torch

from modnorm.baselines.generator_file import SCHEMA, WEIGHTS, read_generator, unusable_generator
from modnorm.baselines.updates import (
    RUN_BATCH,
    last_amplitudes,
    last_losses,
    normaliser,
    tensor_weights,
)
from modnorm.checkpoint.families import Layout
from modnorm.files import canonical_json
from modnorm.perturbation.lineage import Step

FEATURES, HIDDEN = 5, 64

Moments = Sequence[tuple[float, float]]
"""Mean and unbiased variance of each physical tensor."""


class Generator(torch.nn.Module):
    """The networks of all tensors of a model, computed in one batch."""

    def __init__(self, layout: Layout, *, seed: int) -> None:
        super().__init__()
        self.layout = layout
        count = len(layout)
        random = torch.Generator().manual_seed(seed)

        def uniform(inputs: int, *shape: int) -> torch.nn.Parameter:
            bound = 1 / sqrt(inputs)
            return torch.nn.Parameter((2 * torch.rand(shape, generator=random) - 1) * bound)

        self.inner = uniform(FEATURES, count, HIDDEN, FEATURES)
        self.inner_bias = uniform(FEATURES, count, HIDDEN)
        self.outer = uniform(HIDDEN, count, HIDDEN)
        self.outer_bias = uniform(HIDDEN, count)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the raw amplitude of each tensor."""
        inner = torch.einsum("thf,tf->th", self.inner, features) + self.inner_bias
        outer = (self.outer * inner.tanh()).sum(dim=1) + self.outer_bias
        return outer.abs()

    def to_json(self, preparation: Mapping[str, object]) -> str:
        weights = {name: _pack(getattr(self, name)) for name in WEIGHTS}
        content = {
            "schema": SCHEMA,
            "tensors": [[tensor.name, list(tensor.shape)] for tensor in self.layout],
            "weights": weights,
            "preparation": dict(preparation),
        }
        return canonical_json(content)

    @classmethod
    def from_json(cls, text: str, layout: Layout) -> "Generator":
        stored = read_generator(text)
        stored.check_model([(tensor.name, tensor.shape) for tensor in layout])
        generator = cls(layout, seed=0)
        with torch.no_grad():
            for name in WEIGHTS:
                parameter: torch.nn.Parameter = getattr(generator, name)
                parameter.copy_(_unpack(stored.weights[name], tuple(parameter.shape)))
        return generator.requires_grad_(requires_grad=False)


def features_of(
    moments: Moments, losses: tuple[float, float], amplitudes: Sequence[float]
) -> torch.Tensor:
    """Return the inputs of the networks, fp32 [tensors, 5]."""
    rows = [
        (mean, variance, *losses, amplitude)
        for (mean, variance), amplitude in zip(moments, amplitudes, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float32)


@torch.no_grad()
def propose(
    generator: Generator, moments: Moments, steps: Sequence[Step]
) -> tuple[tuple[float, ...], float]:
    """Return raw amplitudes and their normaliser for the next step of a run."""
    previous = last_amplitudes(steps, len(generator.layout))
    raw = generator(features_of(moments, last_losses(steps), previous)).tolist()
    shapes = {tensor.name: tensor.shape for tensor in generator.layout}
    return tuple(raw), normaliser(raw, tensor_weights(shapes, RUN_BATCH))


def _pack(values: torch.Tensor) -> str:
    """Return fp32 values as little-endian bytes in base64."""
    return base64.b64encode(values.detach().numpy().astype("<f4").tobytes()).decode("ascii")


def _unpack(text: str, shape: tuple[int, ...]) -> torch.Tensor:
    try:
        values = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32)
        whole = values.reshape(shape)
    except (RuntimeError, ValueError) as error:
        raise unusable_generator(f"not the weights of a generator: {error}") from error
    if not whole.isfinite().all():
        raise unusable_generator("a weight of the generator is not finite")
    return whole
