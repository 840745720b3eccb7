"""Steps of the task-adapted ZO-Finetuner (paper, app. E.1; facts 9.3).

MeZO with an amplitude for each tensor, which a small network proposes. For fp16's range the
published code divides by 20 epsilon and multiplies by 10 rate. Both factors are omitted here, so
that amplitudes of 1 give MeZO bit for bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum, sqrt

from modnorm.baselines.mezo import mezo_step
from modnorm.errors import InvalidInputError
from modnorm.perturbation.lineage import Step, all_float32

KIND = "zo_finetuner"
RUN_BATCH = 15
"""Batch size in a run that the published weights of embeddings assume."""
PREPARATION_BATCH = 4
_ROWS = 200
"""Tokens of a prompt that these weights assume."""


def tensor_weights(shapes: Mapping[str, Sequence[int]], batch: int = RUN_BATCH) -> list[float]:
    """Return omega of each tensor: its elements, or for an embedding those that a batch reads.

    Args:
        shapes: Shape of each tensor by name, in order.
        batch: Sequences of a batch: 15 in a run, 4 in the preparation.
    """
    return [float(_weight(name, shape, batch)) for name, shape in shapes.items()]


def _weight(name: str, shape: Sequence[int], batch: int) -> int:
    if len(shape) == 2 and "embed" in name:
        return batch * _ROWS * shape[1]
    count = 1
    for length in shape:
        count *= length
    return count


def normaliser(amplitudes: Sequence[float], weights: Sequence[float]) -> float:
    """Return c = sqrt(sum omega) / sqrt(sum omega a^2): the mean squared amplitude becomes 1.

    Raises:
        InvalidInputError: all amplitudes are 0.
    """
    square = fsum(w * a * a for w, a in zip(weights, amplitudes, strict=True))
    if not square > 0:
        raise InvalidInputError(
            "the generator gives all tensors the amplitude 0",
            field="iterative.generator",
            remedy="prepare another generator with other settings: modnorm prepare",
        )
    return sqrt(fsum(weights)) / sqrt(square)


def zo_step(  # noqa: PLR0913 - keyword-only after the first three
    seed: int,
    plus: float | None,
    minus: float | None,
    *,
    raw: Sequence[float],
    scale: float,
    epsilon: float,
    rate: float,
) -> Step:
    """Return one step of the ZO-Finetuner.

    Args:
        seed: Noise seed of the step.
        plus: Mean reward at w + epsilon c a z; None if it failed.
        minus: Mean reward of the other side.
        raw: Amplitude a of each physical tensor, before the normaliser.
        scale: The normaliser c.
        epsilon: Size of the perturbation.
        rate: Learning rate.

    Raises:
        PreconditionError: a side failed.
    """
    return replace(
        mezo_step(seed, plus, minus, epsilon=epsilon, rate=rate),
        kind=KIND,
        amplitudes=all_float32([scale * amplitude for amplitude in raw]),
        normaliser=scale,
    )


def last_losses(steps: Sequence[Step]) -> tuple[float, float]:
    """Return L_plus and L_minus of the last step; zeros before the first."""
    if not steps:
        return 0.0, 0.0
    plus, minus = steps[-1].scores
    return -(plus or 0.0), -(minus or 0.0)


def last_amplitudes(steps: Sequence[Step], count: int) -> tuple[float, ...]:
    """Return the raw amplitudes of `count` tensors in the last step; ones before the first."""
    if not steps:
        return (1.0,) * count
    last = steps[-1]
    return tuple(amplitude / last.normaliser for amplitude in last.amplitudes)
