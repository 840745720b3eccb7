"""The layers that each prompt measures, and the estimator's seeds (paper, app. A.2)."""

from modnorm.errors import InvalidInputError

_EXAMPLE_STRIDE = 100_003
_LAYER_STRIDE = 101
_FINAL_NORM_OFFSET = 90_001


def scheduled_layers(example: int, per_example: int, layers: int) -> tuple[int, ...]:
    """Return the distinct layers of a prompt: (n e + k) mod L (eq. app_layer_schedule)."""
    visits = ((per_example * example + k) % layers for k in range(per_example))
    return tuple(dict.fromkeys(visits))


def map_seed(seed: int, example: int, layer: int, kappa: int) -> int:
    """Return the seed of one estimate; `kappa` is the map's position in its family's list."""
    return seed + _EXAMPLE_STRIDE * example + _LAYER_STRIDE * layer + kappa


def final_norm_seed(seed: int, example: int) -> int:
    """Return the seed of the final norm's estimate on one prompt."""
    return seed + _EXAMPLE_STRIDE * example + _FINAL_NORM_OFFSET


def require_every_layer(examples: int, per_example: int, layers: int) -> None:
    """Check that the schedule gives each layer at least one estimate.

    Raises:
        InvalidInputError: there are too few prompts.
    """
    if examples * per_example < layers:
        needed = -(-layers // per_example)
        raise InvalidInputError(
            f"{examples} prompts at {per_example} layers each leave some of {layers} layers "
            "without an estimate",
            field="calibration.examples",
            remedy=f"use at least {needed} prompts, or raise calibration.layers_per_example",
        )
