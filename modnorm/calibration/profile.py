"""The profile artifact: the calibrated sensitivities of one model."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from modnorm.calibration.maps import layer_maps
from modnorm.calibration.profile_schema import (
    MAX_PROFILE_BYTES,
    Document,
    parse_document,
    unusable_profile,
)
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.files import canonical_json, read_fault, read_text

FINGERPRINT_DIGITS = 16
"""Leading digits of the digest that identify a profile in published results."""


@dataclass(frozen=True)
class Profile:
    """A profile; two profiles are equal if their canonical JSON is equal."""

    canonical: str
    """The document as JSON with sorted keys and no blanks."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a profile in the published schema, version 2 or 3, in any formatting."""
        try:
            return cls.from_content(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise unusable_profile(f"not JSON: {error}") from error

    @classmethod
    def from_content(cls, content: object) -> Self:
        """Validate the content of a profile file."""
        parse_document(content)
        try:
            return cls(canonical_json(content))
        except ValueError as error:
            raise unusable_profile(f"a number in it is not finite: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile file."""
        try:
            text = read_text(path, most=MAX_PROFILE_BYTES)
        except (OSError, ValueError) as error:
            raise unusable_profile(f"cannot read {path}: {read_fault(error)}") from error
        return cls.from_json(text)

    def to_json(self) -> str:
        """Return the canonical JSON, whose SHA-256 is the digest."""
        return self.canonical

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

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
