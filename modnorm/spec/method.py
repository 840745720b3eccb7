"""The method that draws candidates, and the calibration of its profile."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from modnorm.spec.section import Float, Int, Name, Section, field_fault
from modnorm.spec_limits import MAX_COUNT, MAX_RANK, MAX_SEED

MAX_MASS = 1e6
"""Largest mass of a group; only ratios of masses matter."""
MIN_RADIUS, MAX_RADIUS = 1e-9, 1e9
"""Bounds of R and sigma: below, rounding removes all noise; above, it destroys any model."""
TargetModules = Literal["all", "all-linear"]
"""The matrices that low-rank noise perturbs: all, or all but embeddings and the output head.

`all-linear` means the same in PEFT.
"""

PromptDigest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""The first digits of the SHA-256 of a prompt."""


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
    """The artifact that chose a radius (docs/radius.md)."""

    added_fields: ClassVar[frozenset[str]] = frozenset(
        {"development_digest", "development_prompts"}
    )

    artifact: str = Field(min_length=1)
    """Digest of the artifact; in a user's spec a file or a digest."""
    transfer: bool = False
    """Whether the artifact may be of another model or task, as in the paper's transfers."""
    protocol: Literal["grid", "functional-matching"] | None = None
    """Protocol of the choice. The client fills in this and the following fields."""
    task: str | None = None
    """Task of the choice."""
    model_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Model of the choice; None until the client has read the artifact."""
    development_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Rows of the choice, which cannot be held-out rows; None for functional matching."""
    development_prompts: tuple[PromptDigest, ...] = ()
    """Digests of the prompts of these rows; empty if the client could not load them."""


class MethodSpec(Section):
    """The method that draws candidates around the base."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"radius_source", "rank", "target_modules"})

    name: Name = Field(min_length=1)
    """Registered name: `modular_norm`, `randopt`, `base`, or an ablation (docs/methods.md)."""
    radius: Float = Field(default=0.0, validation_alias=AliasChoices("radius", "sigma"))
    """R of the modular norm, or sigma of isotropic noise, which may also be named `sigma`.

    A user's spec may contain an artifact instead: `{artifact: FILE}`.
    """
    radius_source: RadiusSource | None = None
    """The artifact of the radius; None if the user set a number."""
    rank: Int | None = Field(default=None, ge=1, le=MAX_RANK)
    """Rank of the noise of each matrix (docs/low-rank.md); None for full rank."""
    target_modules: TargetModules = "all"
    """The matrices that noise of a rank perturbs."""
    profile: str | None = None
    """Profile to use, a file or a digest; by default the profile is calibrated."""
    masses: Masses = Masses()

    @model_validator(mode="before")
    @classmethod
    def _sigma_is_of_isotropic_noise(cls, data: object) -> object:
        if isinstance(data, Mapping) and "sigma" in data and "name" in data:
            _check_sigma(data)
        return _move_source(data)

    @model_validator(mode="after")
    def _radius_is_usable(self) -> Self:
        if self.name == "base" and (self.radius != 0 or self.radius_source is not None):
            raise field_fault("radius", "base moves nothing; remove the radius")
        if not self.is_resolved:
            if self.radius != 0:
                raise field_fault("radius", "is a number already; the artifact is not needed")
            return self
        if self.name != "base" and not MIN_RADIUS <= self.radius <= MAX_RADIUS:
            raise field_fault("radius", _radius_fault(self.radius))
        return self

    @model_validator(mode="after")
    def _target_modules_need_a_rank(self) -> Self:
        if self.rank is None and self.target_modules != "all":
            raise field_fault(
                "target_modules", "needs low-rank noise; set rank, or remove target_modules"
            )
        return self

    @property
    def is_resolved(self) -> bool:
        """Whether the radius is a number: the client has read any artifact that the spec names."""
        return self.radius_source is None or self.radius_source.model_digest is not None


class CalibrationSpec(Section):
    """Sensitivity calibration (paper, app. A.2)."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"maps"})

    examples: Int = Field(default=64, ge=1, le=4096)
    layers_per_example: Int = Field(default=4, ge=1, le=MAX_COUNT)
    max_length: Int = Field(default=128, ge=1, le=MAX_COUNT)
    """Leading prompt tokens."""
    iterations: Int = Field(default=3, ge=1, le=100)
    """JVP/VJP steps before the last JVP."""
    quantile: Float = Field(default=0.9, ge=0, le=1)
    seed: Int = Field(default=1729, ge=0, le=MAX_SEED)
    maps: Literal["default", "published"] = "default"
    """`published`: for Gemma 3, the attention and MLP maps norm their input twice, as published.

    Other families have no such difference.
    """


def _radius_fault(radius: float) -> str:
    """Return what is wrong with a radius; 0 is the default of a radius that is not given."""
    if radius == 0:
        return (
            "must be given: the scale of the noise (`sigma` for randopt), or `{artifact: FILE}` "
            "with the radius.json that `modnorm tune` or `modnorm match` will write"
        )
    return f"must be from {MIN_RADIUS:g} to {MAX_RADIUS:g}, not {radius:g}"


def _check_sigma(data: Mapping[str, object]) -> None:
    """Refuse sigma for other methods than randopt; the message shows a misspelt name.

    Raises:
        PydanticCustomError: sigma is not the radius of the method.
    """
    if data["name"] != "randopt":
        raise field_fault(
            "sigma",
            f"sigma is the radius of randopt, but the name is {data['name']!r}; "
            "use radius, or correct the name",
        )
    if "radius" in data:
        raise field_fault("sigma", "is another name of radius, which is set too; leave one out")


def _move_source(data: object) -> object:
    """Move an artifact from the field of the radius to `radius_source`."""
    if not isinstance(data, Mapping):
        return data
    for name in ("radius", "sigma"):
        if isinstance(data.get(name), Mapping):
            _check_artifact(name, data[name])
            others = {key: value for key, value in data.items() if key != name}
            return {**others, "radius_source": data[name]}
    return data


def _check_artifact(name: str, given: Mapping[str, object]) -> None:
    """Check the two fields of an artifact under the name that the user wrote.

    Raises:
        PydanticCustomError: a field is unknown or of the wrong kind.
    """
    for key in given.keys() - {"artifact", "transfer"}:
        raise field_fault(f"{name}.{key}", "there is no such field here, only artifact, transfer")
    artifact = given.get("artifact")
    if not isinstance(artifact, str) or not artifact:
        raise field_fault(name, "must be a number or `{artifact: FILE}`")
    if not isinstance(given.get("transfer", False), bool):
        raise field_fault(f"{name}.transfer", "must be true or false")
