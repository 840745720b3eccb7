"""The profile artifact: the calibrated sensitivities of one model."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.files import CanonicalDocument, canonical_json, read_fault, read_text
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


FINGERPRINT_DIGITS = 16
"""Leading digits of the digest that identify a profile in published results."""


class Profile(CanonicalDocument):
    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a profile in the published schema, version 2 or 3, in any formatting."""
        try:
            return cls.from_content(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise unusable_profile(f"not JSON: {error}") from error

    @classmethod
    def from_content(cls, content: object) -> Self:
        parse_document(content)
        try:
            return cls(canonical_json(content))
        except ValueError as error:
            raise unusable_profile(f"a number in it is not finite: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            text = read_text(path, most=MAX_PROFILE_BYTES)
        except (OSError, ValueError) as error:
            raise unusable_profile(f"cannot read {path}: {read_fault(error)}") from error
        return cls.from_json(text)

    @property
    def fingerprint(self) -> str:
        """First 16 digits of the digest; for a published file the published fingerprint."""
        return self.digest[:FINGERPRINT_DIGITS]

    @cached_property
    def _document(self) -> Document:
        return parse_document(json.loads(self.canonical))

    @property
    def model_name(self) -> str:
        return self._document.model_name

    @property
    def model_digest(self) -> str | None:
        """Digest of the calibrated model; None in published files."""
        return self._document.model_digest

    @cached_property
    def sensitivities(self) -> tuple[Mapping[str, float], ...]:
        """Gamma of each functional map, by layer (paper, eq. app_aggregated_sensitivity)."""
        layers = (self._document.layers[str(i)] for i in range(self._document.num_layers))
        return tuple({metric: entry.value for metric, entry in layer.items()} for layer in layers)

    def check_matches(self, checkpoint: Checkpoint) -> None:
        """Refuse a model that the profile was not calibrated on."""
        from modnorm.calibration.maps import layer_maps  # noqa: PLC0415 - loads torch

        layers = checkpoint.config.get("num_hidden_layers")
        if self._document.num_layers != layers:
            raise _mismatch(f"it has {self._document.num_layers} layers, the model {layers}")
        if self.model_digest is None:
            theirs, ours = self.model_name, checkpoint.name
            local = Path(ours).expanduser()
            if local.is_dir():
                theirs, ours = Path(theirs).name, local.resolve().name
            if theirs != ours:
                raise _mismatch(
                    f"it was calibrated on {self.model_name}, this is {checkpoint.name}"
                )
        elif self.model_digest != checkpoint.digest:
            raise _mismatch(
                f"it was calibrated on model {self.model_digest[:12]} ({self.model_name}), "
                f"this is model {checkpoint.digest[:12]} ({checkpoint.name})"
            )
        metrics = layer_maps(checkpoint.config.get("model_type")).metrics
        if lacking := [name for name in metrics if name not in self.sensitivities[0]]:
            raise _mismatch(f"it lacks {lacking[0]} in layer 0")


def _mismatch(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the profile belongs to another model: {reason}",
        field="method.profile",
        remedy="set the profile of this model, or omit it to calibrate one",
    )
