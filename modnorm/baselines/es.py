"""Iterative evolution strategies (paper, app. E.1; facts 9.1).

Each update draws a population around the current model, turns its mean rewards into z-scores and
moves the model along the weighted noise:

    w <- w + alpha / P * sum_i  (r_i - mean) / (SD + 1e-8) * z_i        SD of the population
"""

from collections.abc import Sequence
from math import fsum, sqrt

import numpy as np

from modnorm.errors import PreconditionError
from modnorm.perturbation.lineage import Step, all_float32, as_float32

KIND = "es"
SEED_LIMIT = 2**30
_FLOOR = 1e-8


def es_seeds(seed: int, update: int, population: int) -> tuple[int, ...]:
    """Return the noise seeds of one update: numpy's integers from generator `seed + update`."""
    drawn = np.random.default_rng(seed + update).integers(0, SEED_LIMIT, size=population)
    return tuple(drawn.tolist())


def z_scores(rewards: Sequence[float | None]) -> tuple[float, ...]:
    """Return (r - mean) / (SD + 1e-8) of each reward, 0 if a candidate failed.

    Raises:
        PreconditionError: no candidate has a reward.
    """
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
    """Return the step of one update.

    Args:
        seeds: Noise seed of each candidate.
        rewards: Mean reward of each; None if it failed, which excludes it from the step.
        alpha: Step size.

    Raises:
        PreconditionError: no candidate has a reward.
    """
    return Step(
        kind=KIND,
        seeds=tuple(seeds),
        coefficients=all_float32(z_scores(rewards)),
        rate=as_float32(alpha / len(seeds)),
        scores=tuple(rewards),
    )
