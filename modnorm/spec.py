"""The experiment spec: what a user writes in YAML and what a service stores.

Every limit is checked here, so that the command line, the client and the aggregator refuse the
same things with the same words. What needs a model or data at hand (the prompt fits, the profile
belongs to the model) is checked by the services before anything is stored.
"""

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from modnorm.errors import InvalidInputError

_FIELD_FAULT = "field_fault"

MAX_POPULATION = 100_000
"""Largest N accepted: the paper's largest population is 3,000."""
MAX_SEED = 2**63 - 1
MAX_TWO_SIDED_SEED = MAX_SEED // 1_000_003 - 1
"""Largest seed of a run with two sides: seeds of its steps are 64-bit integers."""
MAX_MASS = 1e6
"""Largest mass of a group; only ratios of masses matter."""
MAX_DECLARATION = 65_536
"""Largest text of a declared task, in bytes of UTF-8."""
MAX_MODEL_LEN, MAX_SEQUENCES, MAX_RANKS = 2**20, 4096, 64
"""Bounds of an engine's settings, beyond those of any model or host of today."""
MIN_RADIUS, MAX_RADIUS = 1e-9, 1e9
"""Bounds of R and sigma: what rounds to nothing, and what no model survives."""


def _field_fault(field: str, message: str) -> PydanticCustomError:
    """Blame one field of a section for a rule that binds several."""
    return PydanticCustomError(_FIELD_FAULT, "{message}", {"message": message, "field": field})


def _no_truth_value(value: object) -> object:
    """Refuse what pydantic would take for 0 or 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth_value", "must be a number, not true or false")
    return value


_Int = Annotated[int, BeforeValidator(_no_truth_value)]
_Float = Annotated[float, BeforeValidator(_no_truth_value)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


SectionT = TypeVar("SectionT", bound=_Section)


def _named(value: object) -> object:
    """Let a section be given by its name alone: `task: countdown`."""
    return {"name": value} if isinstance(value, str) else value


def _sourced(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


def _source_apart(data: object) -> object:
    """Take an artifact that stands in the place of the radius to where it belongs."""
    if not isinstance(data, Mapping):
        return data
    for name in ("radius", "sigma"):
        if isinstance(data.get(name), Mapping):
            rest = {key: value for key, value in data.items() if key != name}
            return {**rest, "radius_source": data[name]}
    return data


def _over(given: object, defaults: Mapping[str, object]) -> object:
    """Return a section over its defaults; what is no section is left to be refused."""
    if given is None:
        return dict(defaults)
    return {**defaults, **given} if isinstance(given, Mapping) else given


class ModelSpec(_Section):
    """A pretrained causal language model and its revision."""

    name: str = Field(min_length=1)
    """Bundled name (`tiny-thicket`), local directory, or Hugging Face repository."""
    revision: str | None = None
    """Commit of a Hugging Face repository; a local directory has none."""


class DataSpec(_Section):
    """Rows of a task, in file order."""

    source: str = Field(min_length=1)
    """`bundled:NAME`, `split:TASK/NAME`, a file or folder, or a Hugging Face dataset id."""
    config: str | None = None
    """Configuration of a Hugging Face dataset."""
    split: str | None = None
    """Split of a Hugging Face dataset, or a file of a folder without its suffix."""
    revision: str | None = None
    """Commit of a Hugging Face dataset."""
    offset: _Int = Field(default=0, ge=0)
    """Rows passed over at the start."""
    limit: _Int | None = Field(default=None, ge=1)
    """Rows taken; all that are left when absent."""


class TaskSpec(_Section):
    """A benchmark, the rows that rank candidates and the rows that are voted on."""

    name: str = Field(min_length=1)
    """Registered name, or name of the declared task. Where a user writes it, a task file."""
    declaration: str | None = Field(default=None, min_length=1, max_length=MAX_DECLARATION)
    """Text of the task file, put here by who reads it; none where the task is registered."""
    selection: Annotated[DataSpec, BeforeValidator(_sourced)]
    heldout: Annotated[DataSpec, BeforeValidator(_sourced)]
    max_tokens: _Int | None = Field(default=None, ge=1, le=131_072)
    """Completion cap; the paper's for the task when absent."""
    scorer: str | None = Field(default=None, min_length=1)
    """Scorer by name; `reference` reproduces the published code, the default is right."""

    @model_serializer(mode="wrap")
    def _leave_out_no_declaration(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        """Keep the digests that specs had before tasks could be declared."""
        content: dict[str, object] = handler(self)
        if self.declaration is None:
            content.pop("declaration", None)
        return content


class Masses(_Section):
    """Total mass of each parameter group (paper, table "Total mass")."""

    embedding: _Float = Field(default=1.0, ge=0, le=MAX_MASS)
    attention: _Float = Field(default=0.5, ge=0, le=MAX_MASS)
    mlp: _Float = Field(default=0.5, ge=0, le=MAX_MASS)
    head: _Float = Field(default=1.0, ge=0, le=MAX_MASS)
    norm: _Float = Field(default=0.1, ge=0, le=MAX_MASS)
    other: _Float = Field(default=0.1, ge=0, le=MAX_MASS)

    @model_validator(mode="after")
    def _some_mass(self) -> Self:
        if sum(self.model_dump().values()) <= 0:
            raise ValueError("at least one group needs mass")
        return self


class RadiusSource(_Section):
    """The artifact that a radius was chosen in (docs/radius.md)."""

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


class MethodSpec(_Section):
    """How candidates are drawn around the base."""

    name: str = Field(min_length=1)
    """Registered name: `modular_norm`, `randopt`, `base`, or an ablation (docs/methods.md)."""
    radius: _Float = Field(default=0.0, validation_alias=AliasChoices("radius", "sigma"))
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
        if isinstance(data, Mapping) and "sigma" in data and data.get("name") != "randopt":
            raise _field_fault("sigma", "sigma is the radius of randopt; give radius instead")
        return _source_apart(data)

    @model_validator(mode="after")
    def _radius_is_usable(self) -> Self:
        if self.name == "base" and (self.radius != 0 or self.radius_source is not None):
            raise _field_fault("radius", "base moves nothing; leave the radius out")
        if not self.is_settled:
            if self.radius != 0:
                raise _field_fault("radius", "is a number already; the artifact is not needed")
            return self
        if self.name != "base" and not MIN_RADIUS <= self.radius <= MAX_RADIUS:
            raise _field_fault(
                "radius",
                f"radius (sigma for randopt) must be given, from {MIN_RADIUS:g} to {MAX_RADIUS:g}",
            )
        return self

    @model_serializer(mode="wrap")
    def _leave_out_no_source(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Keep the digests that specs had before radii could be named by an artifact."""
        content: dict[str, object] = handler(self)
        if self.radius_source is None:
            content.pop("radius_source", None)
        return content

    @property
    def is_settled(self) -> bool:
        """Whether the radius is a number: no artifact is named that nobody has read yet."""
        return self.radius_source is None or self.radius_source.model_digest is not None


class CalibrationSpec(_Section):
    """Sensitivity calibration (paper, app. A.2)."""

    examples: _Int = Field(default=64, ge=1, le=4096)
    layers_per_example: _Int = Field(default=4, ge=1)
    max_length: _Int = Field(default=128, ge=1)
    """Leading prompt tokens."""
    iterations: _Int = Field(default=3, ge=1, le=100)
    """JVP/VJP steps before the last JVP."""
    quantile: _Float = Field(default=0.9, ge=0, le=1)
    seed: _Int = Field(default=1729, ge=0, le=MAX_SEED)
    maps: Literal["default", "published"] = "default"
    """`published`: for Gemma 3 the maps of attention and MLP norm their input twice, as in the
    published code; for other families there is no difference."""

    @model_serializer(mode="wrap")
    def _leave_out_default_maps(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Keep the digests that specs and profiles had before there was a choice."""
        content: dict[str, object] = handler(self)
        if self.maps == "default":
            content.pop("maps", None)
        return content


class PopulationSpec(_Section):
    """How many candidates, which nested prefixes, which ensembles."""

    size: _Int = Field(ge=1, le=MAX_POPULATION)
    """N: candidates sampled and scored."""
    prefixes: tuple[_Int, ...] = ()
    """Population sizes to report, nested; N alone when empty."""
    ensemble_sizes: tuple[_Int, ...] = (1,)
    """Ensemble sizes K to report."""
    seed: _Int = Field(default=42, ge=0, le=MAX_SEED)
    pool: Literal["nested", "published"] = "nested"
    """`nested`: the first n candidates do not depend on N. `published`: numpy's choice, as in
    the published pools, which depends on N."""
    noise: str = "portable-v1"
    """Noise scheme by name; `randopt-reseed-v1` is the published one."""
    statistics: Literal["experts", "full"] = "experts"
    """`experts`: candidates that can be no expert any more are not scored to their end, and
    experts leave out rows whose vote is settled; experts, votes and metrics stay what they are.
    `full`: every candidate and every expert answers every row (docs/early-stop.md)."""

    @model_serializer(mode="wrap")
    def _leave_out_default_statistics(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        """Keep the digests that specs had before there was a choice."""
        content: dict[str, object] = handler(self)
        if self.statistics == "experts":
            content.pop("statistics", None)
        return content

    @model_validator(mode="after")
    def _prefixes_fit(self) -> Self:
        prefixes = self.reported_prefixes
        if sorted(set(prefixes)) != list(prefixes) or prefixes[0] < 1:
            raise _field_fault("prefixes", "must be positive, distinct and ascending")
        if prefixes[-1] != self.size:
            raise _field_fault("prefixes", f"the largest prefix must equal size ({self.size})")
        return self

    @model_validator(mode="after")
    def _ensembles_fit(self) -> Self:
        sizes, smallest = self.ensemble_sizes, self.reported_prefixes[0]
        if not sizes or min(sizes) < 1:
            raise _field_fault("ensemble_sizes", "must name at least one positive K")
        if sorted(set(sizes)) != list(sizes):
            raise _field_fault("ensemble_sizes", "must be distinct and ascending")
        if sizes[-1] > smallest:
            raise _field_fault(
                "ensemble_sizes",
                f"K = {sizes[-1]} is greater than the smallest prefix ({smallest})",
            )
        return self

    @property
    def reported_prefixes(self) -> tuple[int, ...]:
        """The population sizes that results are reported for, ascending."""
        return self.prefixes or (self.size,)


class EngineSpec(_Section):
    """How evaluators run the model."""

    name: Literal["auto", "transformers", "vllm"] = "auto"
    """`auto` is vLLM where the evaluator has it and a GPU, else transformers (docs/engines.md)."""
    max_model_len: _Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest sequence in tokens, prompt and completion together; the model's own when absent."""
    max_num_seqs: _Int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    """Sequences that vLLM decodes at once; 256 when absent."""
    tensor_parallel_size: _Int = Field(default=1, ge=1, le=MAX_RANKS)
    """GPUs that vLLM spreads one model over."""
    numerics: Literal["fast", "batch_invariant"] = "fast"
    """`batch_invariant`: an answer does not depend on what shares its batch; vLLM on a GPU."""

    @model_validator(mode="after")
    def _is_of_vllm(self) -> Self:
        for field in ("tensor_parallel_size", "numerics"):
            asked = getattr(self, field) != type(self).model_fields[field].default
            if asked and self.name == "transformers":
                raise _field_fault(field, "the transformers engine has no such setting; use vllm")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Keep the digests that specs had before engines had settings."""
        content: dict[str, object] = handler(self)
        defaults = type(self).model_fields
        return {
            name: value
            for name, value in content.items()
            if name == "name" or value != defaults[name].default
        }


class FailureSpec(_Section):
    """When to try again and when to give up."""

    max_attempts: _Int = Field(default=3, ge=1, le=100)
    """Attempts a job gets before it fails for good."""
    max_failed_candidates: _Int = Field(default=0, ge=0)
    """Failed candidates that the experiment tolerates; they are left out of the ranking."""


_TWO_SIDED: Mapping[str, Mapping[str, object]] = {
    "method": {"radius": 0.001},
    "population": {"size": 2, "statistics": "full"},
    "iterative": {"updates": 1500, "rate": 1e-6, "report": "best"},
}
ITERATIVE_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "es": {
        "method": {"radius": 0.001},
        "population": {"size": 30, "statistics": "full"},
        "iterative": {"updates": 100, "rate": 0.0005, "report": "last"},
    },
    "mezo": _TWO_SIDED,
    "zo_finetuner": _TWO_SIDED,
}
"""Sections of a spec by iterative method, where it says nothing else (paper, app. E.1)."""


class IterativeSpec(_Section):
    """How a model is trained by perturbations alone (paper, app. E.1; docs/baselines.md)."""

    updates: _Int = Field(ge=1, le=100_000)
    """Updates of the model; 100 for ES, 1,500 for the others."""
    rate: _Float = Field(gt=0, le=1e6)
    """alpha of ES, learning rate of the others."""
    report: Literal["last", "best"]
    """The state that the held-out rows are answered with: the last, or the best on the
    development rows by accuracy, then mean reward, then fewest updates."""
    development: Annotated[DataSpec, BeforeValidator(_sourced)] | None = None
    """Rows that choose among the states."""
    evaluate_every: _Int = Field(default=100, ge=1)
    """Updates between two states that answer the development rows; the first one does, too."""
    monitor: tuple[_Int, ...] = ()
    """Updates after which the held-out rows are answered as well; this chooses nothing."""
    rounding: Literal["once", "published"] = "once"
    """`published`: updates and perturbations of ES are rounded before they are added, too."""
    generator: str | None = None
    """Prepared generator of `zo_finetuner`: a file."""

    @model_validator(mode="after")
    def _states_are_known(self) -> Self:
        if (self.report == "best") != (self.development is not None):
            raise _field_fault(
                "development",
                "the best state is chosen on development rows: name them"
                if self.development is None
                else "nothing is chosen on these rows; set report to best, or leave them out",
            )
        if sorted(set(self.monitor)) != list(self.monitor):
            raise _field_fault("monitor", "must be distinct and ascending")
        if self.monitor and not 0 <= self.monitor[0] <= self.monitor[-1] <= self.updates:
            raise _field_fault("monitor", f"must be from 0 to {self.updates}")
        return self


class ExperimentSpec(_Section):
    """Model, task, method, N, prefixes, K list and seed: everything that defines an experiment."""

    name: str = Field(default="", max_length=200)
    """A label for people."""
    model: Annotated[ModelSpec, BeforeValidator(_named)]
    task: TaskSpec
    method: Annotated[MethodSpec, BeforeValidator(_named)]
    population: PopulationSpec
    calibration: CalibrationSpec = CalibrationSpec()
    engine: Annotated[EngineSpec, BeforeValidator(_named)] = EngineSpec()
    failures: FailureSpec = FailureSpec()
    iterative: IterativeSpec | None = None
    """Settings of an iterative method; None for all others."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_iterative(cls, data: object) -> object:
        """Give an iterative method its sections, each with the paper's settings."""
        method = _named(data.get("method")) if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(method, Mapping):
            return data
        defaults = ITERATIVE_DEFAULTS.get(str(method.get("name")), {})
        given = {**data, "method": method}
        return {**given, **{name: _over(given.get(name), part) for name, part in defaults.items()}}

    @model_validator(mode="after")
    def _iterative_fits(self) -> Self:
        name, population = self.method.name, self.population
        if self.iterative is None:
            return self
        if name not in ITERATIVE_DEFAULTS:
            raise _field_fault("iterative", f"{name} makes no updates; leave this out")
        if population.prefixes or population.ensemble_sizes != (1,):
            raise _field_fault("population", f"{name} trains one model: no prefixes, no ensembles")
        if population.statistics != "full":
            raise _field_fault("population.statistics", f"{name} needs every reward: full")
        if name != "es" and population.size != 2:
            raise _field_fault("population.size", f"{name} has two sides a step: 2")
        if name != "es" and population.seed > MAX_TWO_SIDED_SEED:
            raise _field_fault("population.seed", f"must be at most {MAX_TWO_SIDED_SEED}")
        if name != "es" and self.iterative.rounding != "once":
            raise _field_fault("iterative.rounding", f"{name} rounds once")
        if (name == "zo_finetuner") != (self.iterative.generator is not None):
            raise _field_fault("iterative.generator", "zo_finetuner needs one, no other method")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_not_iterative(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        """Keep the digests that specs had before there were iterative methods."""
        content: dict[str, object] = handler(self)
        if self.iterative is None:
            content.pop("iterative", None)
        return content

    @property
    def work(self) -> Self:
        """The spec without what changes no answer: when to give up."""
        return self.model_copy(update={"failures": FailureSpec()})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal digests mean the same experiment."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a spec as a whole.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    return parse_section(ExperimentSpec, data)


def parse_section(
    kind: type[SectionT], data: Mapping[str, object], *, field: str | None = None
) -> SectionT:
    """Validate one section of a spec.

    Args:
        kind: The section's class.
        data: Its content.
        field: Its path in the spec, `calibration` for instance; None for a whole spec.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _first_fault(error, field) from error


def load_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInputError: the file is missing, is not YAML, or breaks the schema.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidInputError(f"cannot read {path}: {error}", field="spec") from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{path} is not a YAML mapping", field="spec")
    return parse_spec(data)


def _first_fault(error: ValidationError, prefix: str | None) -> InvalidInputError:
    start = () if prefix is None else (prefix,)
    faults = [
        (
            ".".join(str(step) for step in (*start, *_place(fault))),
            fault["msg"].removeprefix("Value error, "),
        )
        for fault in error.errors(include_url=False, include_input=False)
    ]
    field, message = faults[0]
    others = "; ".join(f"{name}: {text}" for name, text in faults[1:])
    return InvalidInputError(
        f"{message}; also {others}" if others else message, field=field or "spec"
    )


def _place(fault: ErrorDetails) -> tuple[int | str, ...]:
    """Return where a fault lies; one of `_field_fault` is placed at its section by pydantic."""
    if fault["type"] == _FIELD_FAULT:
        return (*fault["loc"], fault["ctx"]["field"])
    return fault["loc"]
