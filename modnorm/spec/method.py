"""How candidates are drawn, and how a model is calibrated for it."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from modnorm.limits import MAX_COUNT, MAX_SEED
from modnorm.spec.section import Float, Int, Name, Section, field_fault

MAX_MASS = 1e6
"""Largest mass of a group; only ratios of masses matter."""
MIN_RADIUS, MAX_RADIUS = 1e-9, 1e9
"""Bounds of R and sigma: what rounds to nothing, and what no model survives."""


class Masses(Section):
    """Total mass of each parameter group (paper, table "Total mass")."""

    embedding: Float = Field(default=1.0, ge=0, le=MAX_MASS)
    attention: Float = Field(default=0.5, ge=0, le=MAX_MASS)
    mlp: Float = Field(default=0.5, ge=0, le=MAX_MASS)
    head: Float = Field(default=1.0, ge=0, le=MAX_MASS)
    norm: Float = Field(default=0.1, ge=0, le=MAX_MASS)
    other: Float = Field(default=0.1, ge=0, le=MAX_MASS)

    @model_validator(mode="after")
    def _some_mass(self) -> Self:
        if sum(self.model_dump().values()) <= 0:
            raise ValueError("at least one group needs mass")
        return self


class RadiusSource(Section):
    """The artifact that a radius was chosen in (docs/radius.md)."""

    later: ClassVar[frozenset[str]] = frozenset({"development_digest"})

    artifact: str = Field(min_length=1)
    """Digest of the artifact. Where a user writes it, a file or a digest."""
    transfer: bool = False
    """Whether it may be of another model or task, as the paper transfers radii."""
    protocol: Literal["grid", "functional-matching"] | None = None
    """How it was chosen; put here, as the rest, by who reads the artifact."""
    task: str | None = None
    """Task that it was chosen on."""
    model_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Model that it was chosen for; None until the artifact was read."""
    development_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Rows that it was chosen on, which are no test of it; None for functional matching."""


class MethodSpec(Section):
    """How candidates are drawn around the base."""

    later: ClassVar[frozenset[str]] = frozenset({"radius_source"})

    name: Name = Field(min_length=1)
    """Registered name: `modular_norm`, `randopt`, `base`, or an ablation (docs/methods.md)."""
    radius: Float = Field(default=0.0, validation_alias=AliasChoices("radius", "sigma"))
    """R of the modular norm; sigma of isotropic noise (`sigma` is accepted as its name). Where a
    user writes it, an artifact may stand here instead: `{artifact: FILE}`."""
    radius_source: RadiusSource | None = None
    """The artifact that the radius is from; None where a number was given."""
    profile: str | None = None
    """Profile to use: a file or a digest; calibrated on the spot when absent."""
    masses: Masses = Masses()

    @model_validator(mode="before")
    @classmethod
    def _sigma_is_of_isotropic_noise(cls, data: object) -> object:
        if isinstance(data, Mapping) and "sigma" in data and "name" in data:
            _check_sigma(data)
        return _source_apart(data)

    @model_validator(mode="after")
    def _radius_is_usable(self) -> Self:
        if self.name == "base" and (self.radius != 0 or self.radius_source is not None):
            raise field_fault("radius", "base moves nothing; leave the radius out")
        if not self.is_settled:
            if self.radius != 0:
                raise field_fault("radius", "is a number already; the artifact is not needed")
            return self
        if self.name != "base" and not MIN_RADIUS <= self.radius <= MAX_RADIUS:
            raise field_fault(
                "radius",
                f"radius (sigma for randopt) must be given, from {MIN_RADIUS:g} to {MAX_RADIUS:g}",
            )
        return self

    @property
    def is_settled(self) -> bool:
        """Whether the radius is a number: no artifact is named that nobody has read yet."""
        return self.radius_source is None or self.radius_source.model_digest is not None


class CalibrationSpec(Section):
    """Sensitivity calibration (paper, app. A.2)."""

    later: ClassVar[frozenset[str]] = frozenset({"maps"})

    examples: Int = Field(default=64, ge=1, le=4096)
    layers_per_example: Int = Field(default=4, ge=1, le=MAX_COUNT)
    max_length: Int = Field(default=128, ge=1, le=MAX_COUNT)
    """Leading prompt tokens."""
    iterations: Int = Field(default=3, ge=1, le=100)
    """JVP/VJP steps before the last JVP."""
    quantile: Float = Field(default=0.9, ge=0, le=1)
    seed: Int = Field(default=1729, ge=0, le=MAX_SEED)
    maps: Literal["default", "published"] = "default"
    """`published`: for Gemma 3 the maps of attention and MLP norm their input twice, as in the
    published code; for other families there is no difference."""


def _check_sigma(data: Mapping[str, object]) -> None:
    """Refuse sigma where it is not the radius; who misspelt `randopt` is shown the name.

    Raises:
        PydanticCustomError: it is not.
    """
    if data["name"] != "randopt":
        raise field_fault(
            "sigma",
            f"sigma is the radius of randopt, but the name is {data['name']!r}; "
            "give radius instead, or correct the name",
        )
    if "radius" in data:
        raise field_fault("sigma", "is another name of radius, which is given; leave one out")


def _source_apart(data: object) -> object:
    """Take an artifact that stands in the place of the radius to where it belongs."""
    if not isinstance(data, Mapping):
        return data
    for name in ("radius", "sigma"):
        if isinstance(data.get(name), Mapping):
            rest = {key: value for key, value in data.items() if key != name}
            return {**rest, "radius_source": data[name]}
    return data
