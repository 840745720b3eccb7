"""MeZO on task rewards (paper, app. E.1; facts 9.2): two sides of one direction in each step.

g = (L_plus - L_minus) / (2 epsilon)        L = - mean reward at w +- epsilon z
w <- w - rate * g * z
"""

from modnorm.errors import PreconditionError
from modnorm.perturbation.lineage import Step, as_float32

KIND = "mezo"
SEED_STRIDE = 1_000_003


def step_seed(seed: int, step: int) -> int:
    """Return the noise seed of a step: `seed * 1,000,003 + step`, counted from 0."""
    return seed * SEED_STRIDE + step


def slope(plus: float | None, minus: float | None, epsilon: float) -> float:
    """Return g from the mean rewards of the two sides.

    Raises:
        PreconditionError: a side failed.
    """
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
    """Return one step of MeZO.

    Args:
        seed: Noise seed of the step.
        plus: Mean reward at w + epsilon z; None if it failed.
        minus: Mean reward at w - epsilon z.
        epsilon: Size of the perturbation.
        rate: Learning rate.

    Raises:
        PreconditionError: a side failed.
    """
    return Step(
        kind=KIND,
        seeds=(seed,),
        coefficients=(as_float32(slope(plus, minus, epsilon)),),
        rate=as_float32(-rate),
        scores=(plus, minus),
    )
