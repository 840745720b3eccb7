"""The radius artifact: all measurements, and the radius that they choose."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from modnorm.errors import InvalidInputError
from modnorm.files import (
    CanonicalDocument,
    canonical_json,
    is_digest,
    read_fault,
    read_text,
    write_file,
)
from modnorm.perturbation.methods import refuse_unused_fields
from modnorm.spec import (
    MAX_RADIUS,
    MIN_RADIUS,
    DataSpec,
    EngineSpec,
    ExperimentSpec,
    Masses,
    RadiusSource,
    TargetModules,
)
from modnorm.spec.search_sections import Digest, PromptDigest
from modnorm.spec.section import Section, located_fault
from modnorm.tasks.row_files import resolve_file

_DECIMALS = 12
"""Decimals to which objectives are compared."""


def smallest(objectives: Sequence[tuple[float, float | None]]) -> float:
    """Return the radius with the smallest objective; on ties the smaller radius.

    Objectives are compared to twelve decimals: means of the same sum can differ in the last bit.
    """
    usable = [
        (round(objective, _DECIMALS), radius)
        for radius, objective in objectives
        if objective is not None and math.isfinite(objective)
    ]
    if not usable:
        raise InvalidInputError(
            "no radius changes the model: rounding removes every perturbation",
            field="radii",
            remedy="try larger radii",
        )
    return min(usable)[1]


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Subject(_Schema):
    """The model that the radius is for."""

    name: str = Field(min_length=1)
    revision: str | None
    digest: Digest


class MethodSubject(Section):
    """The method of the radius, with all inputs of its scales."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"rank", "target_modules"})

    name: str = Field(min_length=1)
    masses: Masses
    profile: Digest | None
    """Digest of the profile; None for methods without one."""
    scale_map: Digest
    rank: int | None = Field(default=None, ge=1)
    """Rank of the noise; None for full rank."""
    target_modules: TargetModules = "all"
    """The matrices that noise of a rank perturbs."""


class GridSettings(_Schema):
    """The common settings of all trials of a grid."""

    population: int = Field(ge=1)
    """N."""
    ensemble_size: int = Field(ge=1)
    """K."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Population seeds, in the requested order."""
    pool: str
    noise: str
    scorer: str
    max_tokens: int | None
    engine: EngineSpec
    selection: DataSpec
    selection_digest: Digest
    development: DataSpec
    """Rows on which the ensembles are compared."""
    development_digest: Digest
    development_prompts: tuple[PromptDigest, ...] = ()
    """Digests of the prompts of these rows; empty if the client could not load them."""


class GridTrial(_Schema):
    """One experiment of a grid."""

    seed: int
    metric: float = Field(allow_inf_nan=False)
    """Ensemble metric on the development rows, a fraction."""


class GridRadius(_Schema):
    radius: Positive
    mean: float = Field(allow_inf_nan=False)
    """Mean metric over the seeds."""
    trials: tuple[GridTrial, ...] = Field(min_length=1)


class MatchingSettings(_Schema):
    """Settings of functional matching (paper, table "Functional-matching protocol")."""

    prompts: int = Field(default=64, ge=1, le=100_000)
    candidates: int = Field(default=25, ge=1)
    """Measured candidates of each condition: the first of the pool."""
    pool_size: int = Field(default=100, ge=1)
    """Size of the pool; the seeds of a published pool depend on it."""
    seed: int = Field(default=42, ge=0)
    """Population seed of the pool."""
    pool: Literal["nested", "published"] = "nested"
    noise: str = "portable-v1"
    batch: int = Field(default=4, ge=1)
    """Prompts in one forward, padded on the right."""
    max_prompt_tokens: int = Field(default=512, ge=2)
    """A longer prompt is refused; none is cut."""

    @model_validator(mode="after")
    def _candidates_are_of_the_pool(self) -> Self:
        if self.candidates > self.pool_size:
            raise ValueError(
                f"{self.candidates} candidates are more than the pool has ({self.pool_size})"
            )
        return self


class CandidateDisplacement(_Schema):
    """The displacement of one candidate (`modnorm.radius.displacement.Displacement`)."""

    seed: int = Field(ge=0)
    kl: NonNegative
    hidden: NonNegative
    hidden_rms: NonNegative
    states: tuple[NonNegative, ...]


class Condition(_Schema):
    """A radius and its candidates; its figures are their arithmetic means."""

    radius: Positive
    """R, or sigma of the reference."""
    kl: NonNegative
    hidden: NonNegative
    hidden_rms: NonNegative
    candidates: tuple[CandidateDisplacement, ...] = Field(min_length=1)


class MatchedCondition(Condition):
    """A radius and its objective."""

    objective: NonNegative | None
    """J(R); None if the radius changes nothing."""


class Reference(Condition):
    """Isotropic noise."""

    scale_map: Digest


class _Artifact(_Schema):
    schema_version: Literal[1] = 1
    kind: Literal["radius"] = "radius"
    model: Subject
    task: str = Field(min_length=1)
    """Name of the task whose rows or prompts were used."""
    method: MethodSubject
    radius: Positive
    """The chosen radius."""


class GridDocument(_Artifact):
    """A grid; it chooses the highest mean metric, on exact ties the smaller radius."""

    protocol: Literal["grid"] = "grid"
    settings: GridSettings
    radii: tuple[GridRadius, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _measurements_choose(self) -> Self:
        _check_choice(self.radius, smallest([(one.radius, -one.mean) for one in self.radii]))
        return self


class MatchingDocument(_Artifact):
    """A functional matching; it chooses the smallest J, on exact ties the smaller radius."""

    protocol: Literal["functional-matching"] = "functional-matching"
    settings: MatchingSettings
    prompts_sha256: Digest
    positions: int = Field(ge=1)
    """Positions compared for each candidate."""
    environment: dict[str, str]
    """Properties that may affect rounding: dtype, device, library versions, threads."""
    reference: Reference
    radii: tuple[MatchedCondition, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _measurements_choose(self) -> Self:
        _check_choice(self.radius, smallest([(one.radius, one.objective) for one in self.radii]))
        return self


Document = Annotated[GridDocument | MatchingDocument, Field(discriminator="protocol")]


def objective(one: Condition, reference: Condition) -> float | None:
    """Return J(R) = ln(KL / KL_iso)^2 + ln(h / h_iso)^2; None if the radius changes nothing."""
    if not (one.kl and one.hidden):
        return None
    return math.log(one.kl / reference.kl) ** 2 + math.log(one.hidden / reference.hidden) ** 2


def _check_choice(stored: float, chosen: float) -> None:
    if stored != chosen:
        raise ValueError(f"radius is {stored:g}, but the measurements choose {chosen:g}")


MAX_RADII = 1_000
"""Limit against mistakes: each radius is measured separately."""


def check_method(spec: ExperimentSpec, radii: Sequence[float], sigma: float) -> None:
    """Refuse a method or scales that cannot be matched on any model."""
    method = spec.method
    if method.name == "base":
        raise InvalidInputError(
            "base perturbs nothing", field="method.name", remedy="name another method"
        )
    if spec.iterative is not None or (method.name == "randopt" and method.rank is None):
        raise InvalidInputError(
            f"{method.name} has isotropic noise, and its radius is sigma itself",
            field="method.name",
            remedy="set method.radius to sigma, or name another method",
        )
    refuse_unused_fields(method)
    if not 0 < len(radii) <= MAX_RADII:
        raise InvalidInputError(
            f"there are {len(radii)} radii", field="radii", remedy=f"give 1 to {MAX_RADII}"
        )
    check_scales("radii", radii)
    check_scales("sigma", [sigma])


def check_scales(field: str, scales: Sequence[float]) -> None:
    """Refuse radii or sigmas that are out of bounds or no numbers."""
    for scale in scales:
        if not MIN_RADIUS <= scale <= MAX_RADIUS:
            raise InvalidInputError(
                f"must be from {MIN_RADIUS:g} to {MAX_RADIUS:g}, not {scale:g}",
                field=field,
                remedy="for example the paper's: radii 0.08,0.16,0.32, sigma 0.0005",
            )


def check_count(prompts: int, wanted: int) -> None:
    """Refuse a matching with too few prompts."""
    if prompts < wanted:
        raise InvalidInputError(
            f"there are {prompts} prompts, {wanted} are required",
            field="task.selection",
            remedy="name more rows, or lower --prompts",
        )


_DOCUMENT: TypeAdapter[GridDocument | MatchingDocument] = TypeAdapter(Document)
_MAX_BYTES = 64 * 2**20


class RadiusArtifact(CanonicalDocument):
    @classmethod
    def of(cls, document: GridDocument | MatchingDocument) -> Self:
        return cls(canonical_json(document.model_dump(mode="json")))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an artifact in any formatting."""
        try:
            return cls.of(_DOCUMENT.validate_json(text))
        except ValidationError as error:
            raise _fault(f"not a radius artifact: {located_fault(error)}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            text = read_text(path, most=_MAX_BYTES)
        except (OSError, ValueError) as error:
            raise _fault(f"cannot read {path}: {read_fault(error)}") from error
        return cls.from_json(text)

    @cached_property
    def document(self) -> GridDocument | MatchingDocument:
        return _DOCUMENT.validate_json(self.canonical)

    def resolve(self, spec: ExperimentSpec) -> ExperimentSpec:
        """Return the spec with this artifact's radius and its source."""
        named = spec.method.radius_source
        transfer = named is not None and named.transfer
        self._check(spec, transfer=transfer)
        document = self.document
        grid = document.settings if isinstance(document, GridDocument) else None
        source = RadiusSource(
            artifact=self.digest,
            transfer=transfer,
            protocol=document.protocol,
            task=document.task,
            model_digest=document.model.digest,
            development_digest=grid.development_digest if grid else None,
            development_prompts=grid.development_prompts if grid else (),
        )
        method = {
            **spec.method.model_dump(mode="json"),
            "radius": self.document.radius,
            "radius_source": source.model_dump(mode="json"),
        }
        return spec.model_copy(update={"method": type(spec.method).model_validate(method)})

    def _check(self, spec: ExperimentSpec, *, transfer: bool) -> None:
        made, used = self.document.method, spec.method
        for name in ("name", "rank", "target_modules", "masses"):
            there, here = getattr(made, name), getattr(used, name)
            if there != here:
                raise _misfit(
                    f"its method.{name} is {there}, that of the spec is {here}",
                    "tune again for the method of the spec, or set a number",
                )
        if self.document.task != spec.task.name and not transfer:
            raise _misfit(
                f"it was chosen on task {self.document.task}, the spec is of {spec.task.name}",
                "choose a radius on this task, or add `transfer: true` to the artifact",
            )


def _misfit(reason: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(
        f"the radius artifact cannot be used: {reason}", field="method.radius", remedy=remedy
    )


def _fault(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="method.radius",
        remedy="use the file that `modnorm tune` or `modnorm match` wrote, or a number",
    )


def radius_folder(cache: Path) -> Path:
    """Return where the artifacts made on this machine are kept, each as `DIGEST.json`."""
    return cache / "radii"


def carry_radius(spec: ExperimentSpec, cache: Path) -> ExperimentSpec:
    """Return a spec whose radius is a number, read from the artifact that it names, if any."""
    source = spec.method.radius_source
    if source is None or spec.method.is_resolved:
        return spec
    return _find(source.artifact, cache).resolve(spec)


def keep_artifact(artifact: RadiusArtifact, cache: Path) -> None:
    """Keep an artifact where specs can name it by its digest."""
    path = radius_folder(cache) / f"{artifact.digest}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, artifact.to_json().encode())
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}",
            field="cache_dir",
            remedy="set MODNORM_CACHE_DIR to a directory that can be written",
        ) from error


def _find(name: str, cache: Path) -> RadiusArtifact:
    if not is_digest(name):
        return RadiusArtifact.load(resolve_file(name, "method.radius", None))
    path = radius_folder(cache) / f"{name}.json"
    if not path.is_file():
        raise InvalidInputError(
            f"there is no radius artifact {name[:16]}... on this machine",
            field="method.radius",
            remedy="name the file that `modnorm tune` or `modnorm match` wrote",
        )
    artifact = RadiusArtifact.load(path)
    if artifact.digest != name:
        raise InvalidInputError(
            f"{path} holds another artifact than its name states",
            field="method.radius",
            remedy="remove it, and name the file that `modnorm tune` or `modnorm match` wrote",
        )
    return artifact
