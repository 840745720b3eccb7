"""The interpreted part of the published JSON schema of profiles, versions 2 and 3.

Other fields are provenance: they are stored and digested, but not interpreted.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from modnorm.errors import InvalidInputError
from modnorm.geometry.scales import CLIP, RATIO

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
    """Check that the schedule gives each layer at least one estimate."""
    if examples * per_example < layers:
        needed = -(-layers // per_example)
        raise InvalidInputError(
            f"{examples} prompts at {per_example} layers each leave some of {layers} layers "
            "without an estimate",
            field="calibration.examples",
            remedy=f"use at least {needed} prompts, or raise calibration.layers_per_example",
        )


MAX_PROFILE_BYTES = 64 * 2**20

METHOD = "recursive_modular_shell_v2"
"""Name of the paper's method in published profiles."""
APPLICATION: Mapping[str, object] = {
    "clip_min": CLIP[0],
    "clip_max": CLIP[1],
    "factor_clip_min": CLIP[0],
    "factor_clip_max": CLIP[1],
    "linear_policy": "analytic",
    "scale_normalization": "none",
    "block_reconciliation": "none",
    "strict_profile": True,
    "propagation_mode": "local_only",
    "local_normalization": "per_block_median",
    "local_ratio_clip_min": RATIO[0],
    "local_ratio_clip_max": RATIO[1],
}
"""The computation of scales from sensitivities (paper, app. A.4), as profiles record it."""
_IDLE = frozenset({"scale_normalization", "block_reconciliation"})
"""Legacy fields that have no effect, also in the published code."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Schema(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Summary(_Schema):
    """The estimates behind a value."""

    count: int = Field(ge=1)
    min: Positive
    median: Positive
    max: Positive


class Sensitivity(_Schema):
    """Gamma of one functional map of one layer."""

    value: Positive
    summary: Summary | None = None


def _metrics(layer: object) -> object:
    """Convert a layer of version 3, `{metadata, metrics}`, to version 2."""
    return layer["metrics"] if isinstance(layer, dict) and "metrics" in layer else layer


Layer = Annotated[dict[str, Sensitivity], BeforeValidator(_metrics)]


class Document(_Schema):
    """A profile file."""

    schema_version: Literal[2, 3]
    method: Literal["recursive_modular_shell_v2"]
    model_name: str = Field(min_length=1)
    model_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    num_layers: int = Field(ge=1)
    application: dict[str, object]
    layers: dict[str, Layer]

    @model_validator(mode="after")
    def _application_is_ours(self) -> Self:
        for name, ours in APPLICATION.items():
            if name not in _IDLE and self.application.get(name, ours) != ours:
                raise ValueError(
                    f"application.{name} is {self.application[name]!r}; only {ours!r} is supported"
                )
        return self

    @model_validator(mode="after")
    def _layers_are_whole(self) -> Self:
        # Compare counts first: a file may state a huge number of layers.
        whole = len(self.layers) == self.num_layers
        if not whole or set(self.layers) != {str(index) for index in range(self.num_layers)}:
            raise ValueError(f"layers must be numbered 0 to {self.num_layers - 1}, each once")
        metrics = self.layers["0"].keys()
        for index in range(self.num_layers):
            if odd := sorted(metrics ^ self.layers[str(index)].keys()):
                raise ValueError(f"layers.{index}: {odd[0]} is not in every layer")
        if not metrics:
            raise ValueError("layers hold no sensitivities")
        return self


def parse_document(data: object) -> Document:
    """Validate the content of a profile file."""
    try:
        return Document.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(step) for step in fault["loc"])
        reason = fault["msg"].removeprefix("Value error, ")
        raise unusable_profile(f"not a profile: {path + ': ' if path else ''}{reason}") from error


def unusable_profile(message: str) -> InvalidInputError:
    """Return the error for a file or a text that is no profile."""
    return InvalidInputError(
        message,
        field="method.profile",
        remedy="use a profile in the published schema, version 2 or 3",
    )
