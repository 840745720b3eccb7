"""Updates of the iterative methods (paper, app. D.1; facts 9), and the state that a run reports.

ES draws a population around the current model and moves it along the noise, weighted by z-scores:

    w <- w + alpha / P * sum_i  (r_i - mean) / (SD + 1e-8) * z_i        SD of the population

MeZO takes two sides of one direction in each step, L = - mean reward at w +- epsilon z:

    g = (L_plus - L_minus) / (2 epsilon)        w <- w - rate * g * z

The ZO-Finetuner is MeZO with an amplitude for each tensor, which a small network proposes. For
fp16's range the published code divides by 20 epsilon and multiplies by 10 rate. Both factors are
omitted here, so that amplitudes of 1 give MeZO bit for bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, prod, sqrt

import numpy as np

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.perturbation.lineage import Step, all_float32, as_float32


@dataclass(frozen=True, slots=True)
class DevelopmentResult:
    """Figures of a state on the development rows."""

    step: int
    """Number of updates that lead to the state."""
    accuracy: float
    reward: float


def best_state(results: Sequence[DevelopmentResult]) -> DevelopmentResult:
    """Return the state with the best accuracy, then mean reward, then the fewest steps."""
    return max(results, key=lambda one: (one.accuracy, one.reward, -one.step))


SEED_LIMIT = 2**30
_FLOOR = 1e-8


def es_seeds(seed: int, update: int, population: int) -> tuple[int, ...]:
    """Return the noise seeds of one update: numpy's integers from generator `seed + update`."""
    drawn = np.random.default_rng(seed + update).integers(0, SEED_LIMIT, size=population)
    return tuple(drawn.tolist())


def z_scores(rewards: Sequence[float | None]) -> tuple[float, ...]:
    """Return (r - mean) / (SD + 1e-8) of each reward, 0 if a candidate failed."""
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        raise PreconditionError(
            "no candidate of the update could be evaluated",
            field="method.radius",
            remedy="check why the candidates failed; try a smaller radius",
        )
    mean = fsum(scored) / len(scored)
    deviation = sqrt(fsum((reward - mean) ** 2 for reward in scored) / len(scored))
    return tuple(
        0.0 if reward is None else (reward - mean) / (deviation + _FLOOR) for reward in rewards
    )


def es_step(seeds: Sequence[int], rewards: Sequence[float | None], alpha: float) -> Step:
    return Step(
        kind="es",
        seeds=tuple(seeds),
        coefficients=all_float32(z_scores(rewards)),
        rate=as_float32(alpha / len(seeds)),
        scores=tuple(rewards),
    )


SEED_STRIDE = 1_000_003


def step_seed(seed: int, step: int) -> int:
    """Return the noise seed of a step: `seed * 1,000,003 + step`, counted from 0."""
    return seed * SEED_STRIDE + step


def slope(plus: float | None, minus: float | None, epsilon: float) -> float:
    """Return g from the mean rewards of the two sides."""
    if plus is None or minus is None:
        raise PreconditionError(
            "a side of the step could not be evaluated, so it has no direction",
            field="method.radius",
            remedy="check why the candidate failed; try a smaller radius",
        )
    return (minus - plus) / (2 * epsilon)


def mezo_step(
    seed: int, plus: float | None, minus: float | None, *, epsilon: float, rate: float
) -> Step:
    return Step(
        kind="mezo",
        seeds=(seed,),
        coefficients=(as_float32(slope(plus, minus, epsilon)),),
        rate=as_float32(-rate),
        scores=(plus, minus),
    )


RUN_BATCH = 15
"""Batch size in a run that the published weights of embeddings assume."""
PREPARATION_BATCH = 4
_ROWS = 200
"""Tokens of a prompt that these weights assume."""


def tensor_weights(shapes: Mapping[str, Sequence[int]], batch: int = RUN_BATCH) -> list[float]:
    """Return omega of each tensor: its elements, or for an embedding those that a batch reads."""
    return [
        float(batch * _ROWS * shape[1] if len(shape) == 2 and "embed" in name else prod(shape))
        for name, shape in shapes.items()
    ]


def normaliser(amplitudes: Sequence[float], weights: Sequence[float]) -> float:
    """Return c = sqrt(sum omega) / sqrt(sum omega a^2): the mean squared amplitude becomes 1."""
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
    return replace(
        mezo_step(seed, plus, minus, epsilon=epsilon, rate=rate),
        kind="zo_finetuner",
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
