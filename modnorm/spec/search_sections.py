"""Sections of a spec about one search: rows, population, method, iterations, running."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from modnorm.hints import did_you_mean
from modnorm.spec.section import Float, Int, Name, Section, field_fault, short_form
from modnorm.spec_limits import MAX_COUNT, MAX_RANK, MAX_SEED

MAX_MODEL_LEN, MAX_SEQUENCES, MAX_RANKS = 2**20, 4096, 64
"""Bounds of an engine's settings, above those of any current model or host."""


class EngineSpec(Section):
    """Settings of the engine that runs the model."""

    added_fields: ClassVar[frozenset[str]] = frozenset(
        {"max_model_len", "max_num_seqs", "tensor_parallel_size", "numerics", "drafts"}
    )

    name: Literal["auto", "transformers", "vllm"] = "auto"
    """`auto`: vLLM if the evaluator has it and a GPU, else transformers (docs/engines.md)."""
    max_model_len: Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest sequence in tokens, prompt and completion together; by default the model's."""
    max_num_seqs: Int | None = Field(default=None, ge=1, le=MAX_SEQUENCES)
    """Sequences that vLLM decodes at once; by default 256 to 1,024, by model and GPU memory."""
    tensor_parallel_size: Int = Field(default=1, ge=1, le=MAX_RANKS)
    """GPUs that vLLM uses for one model."""
    numerics: Literal["fast", "batch_invariant"] = "fast"
    """`batch_invariant`: an answer does not depend on its batch; for vLLM on a GPU."""
    drafts: Literal["auto", "none", "population"] = "auto"
    """`population`: vLLM verifies drafts from other candidates' answers (docs/drafts.md). `auto`:
    so wherever vLLM runs with fast numerics."""

    @property
    def vllm_fields(self) -> list[str]:
        """Fields that ask for what only vLLM on a GPU has."""
        asked = {
            "tensor_parallel_size": self.tensor_parallel_size > 1,
            "numerics": self.numerics != "fast",
            "drafts": self.drafts == "population",
        }
        return [field for field, is_asked in asked.items() if is_asked]

    @model_validator(mode="after")
    def _is_of_vllm(self) -> Self:
        asked = self.vllm_fields
        if asked and self.name == "transformers":
            raise field_fault(asked[0], "the transformers engine has no such setting; use vllm")
        if {"numerics", "drafts"} <= set(asked):
            raise field_fault(
                "drafts",
                "rounding then depends on earlier answers, so it needs `numerics: fast`; "
                "or set `none`",
            )
        return self


class FailureSpec(Section):
    """Limits of failures."""

    max_attempts: Int = Field(default=3, ge=1, le=100)
    """Attempts of a job before it fails; only failures of the infrastructure are retried."""
    max_failed_candidates: Int = Field(default=0, ge=0, le=MAX_COUNT)
    """Failed candidates that a search tolerates, or ES over all updates; MeZO tolerates none.

    They are excluded from the ranking, or from their update.
    """


MAX_DECLARATION = 65_536
"""Largest text of a declared task, in bytes of UTF-8."""


class ModelSpec(Section):
    """A pretrained causal language model and its revision."""

    name: Name = Field(min_length=1)
    """Bundled name (`tiny-thicket`), local directory, or Hugging Face repository."""
    revision: str | None = None
    """Commit, branch or tag of a Hugging Face repository; a local directory has none."""


class DataSpec(Section):
    """Rows of a task, in file order."""

    source: str = Field(min_length=1)
    """`bundled:NAME`, `split:TASK/NAME`, a file, or a Hugging Face dataset id."""
    config: str | None = None
    """Configuration of a Hugging Face dataset."""
    split: str | None = None
    """Split of a Hugging Face dataset."""
    revision: str | None = None
    """Commit, branch or tag of a Hugging Face dataset."""
    offset: Int = Field(default=0, ge=0, le=MAX_COUNT)
    """Rows skipped at the start."""
    limit: Int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Rows used; by default all remaining rows."""


Rows = Annotated[DataSpec, short_form("source")]
"""Rows; a string is a source with all its rows."""


class TaskSpec(Section):
    """A benchmark, the rows that rank candidates and the rows that are voted on."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"declaration"})

    name: Name = Field(min_length=1)
    """Registered name, or name of the declared task; in a user's spec also a task file."""
    declaration: str | None = Field(default=None, min_length=1, max_length=MAX_DECLARATION)
    """Text of the task file, filled in by the client; None for a registered task."""
    selection: Rows
    heldout: Rows
    max_tokens: Int | None = Field(default=None, ge=1, le=131_072)
    """Completion cap in tokens; by default the task's, for benchmarks the paper's."""
    scorer: str | None = Field(default=None, min_length=1)
    """Name of the scorer; `reference` reproduces the published code, the default is correct."""


MAX_POPULATION = 100_000
"""Largest allowed N; the paper's largest population is 3,000."""
MAX_REPORTED = 1_000
"""Largest number of prefixes and of ensemble sizes; the paper has ten."""
MAX_ENSEMBLES = 2_000
"""Largest number of pairs (N, K). Their votes on 1,319 rows take minutes to store."""


class PopulationSpec(Section):
    """The number of candidates, the nested prefixes and the ensembles."""

    size: Int = Field(ge=1, le=MAX_POPULATION)
    """N: candidates sampled and scored."""
    prefixes: tuple[Int, ...] = Field(default=(), max_length=MAX_REPORTED)
    """Nested population sizes to report; by default only N."""
    ensemble_sizes: tuple[Int, ...] = Field(default=(1,), max_length=MAX_REPORTED)
    """Ensemble sizes K to report."""
    seed: Int = Field(default=42, ge=0, le=MAX_SEED)
    pool: Literal["nested", "published"] = "nested"
    """`nested`: the first n candidates do not depend on N.

    `published`: numpy's choice, as in the published pools, which depends on N.
    """
    noise: str = "portable-v1"
    """Name of the noise scheme; `randopt-reseed-v1` is the published one."""

    @model_validator(mode="after")
    def _prefixes_fit(self) -> Self:
        prefixes = self.reported_prefixes
        if sorted(set(prefixes)) != list(prefixes) or prefixes[0] < 1:
            raise field_fault("prefixes", "must be positive, distinct and ascending")
        if prefixes[-1] != self.size:
            raise field_fault("prefixes", f"the largest prefix must equal size ({self.size})")
        return self

    @model_validator(mode="after")
    def _ensembles_fit(self) -> Self:
        sizes, smallest = self.ensemble_sizes, self.reported_prefixes[0]
        if not sizes:
            raise field_fault("ensemble_sizes", "must name at least one K")
        if min(sizes) < 1:
            raise field_fault("ensemble_sizes", f"K must be at least 1, not {min(sizes)}")
        if sorted(set(sizes)) != list(sizes):
            raise field_fault("ensemble_sizes", "must be distinct and ascending")
        if sizes[-1] > smallest:
            least, raised = ("the smallest prefix", "prefix") if self.prefixes else ("N", "size")
            raise field_fault(
                "ensemble_sizes",
                f"K = {sizes[-1]} is greater than {least} ({smallest}); lower K or raise the "
                f"{raised}, since an ensemble is K of the first N candidates",
            )
        if (pairs := len(self.reported_prefixes) * len(sizes)) > MAX_ENSEMBLES:
            raise field_fault(
                "ensemble_sizes",
                f"{len(sizes)} K and {len(self.reported_prefixes)} prefixes are {pairs:,} pairs; "
                f"name fewer, {MAX_ENSEMBLES:,} pairs at most",
            )
        return self

    @property
    def reported_prefixes(self) -> tuple[int, ...]:
        """The reported population sizes, ascending."""
        return self.prefixes or (self.size,)


MAX_MASS = 1e6
"""Largest mass of a group; only ratios of masses matter."""
MIN_RADIUS, MAX_RADIUS = 1e-9, 1e9
"""Bounds of R and sigma: below, rounding removes all noise; above, it destroys any model."""
TargetModules = Literal["all", "all-linear"]
"""The matrices that low-rank noise perturbs: all, or all but embeddings and the output head.

`all-linear` means the same in PEFT.
"""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
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
    model_digest: Digest | None = None
    """Model of the choice; None until the client has read the artifact."""
    development_digest: Digest | None = None
    """Rows of the choice, which cannot be held-out rows; None for functional matching."""
    development_prompts: tuple[PromptDigest, ...] = ()
    """Digests of the prompts of these rows; empty if the client could not load them."""


class MethodSpec(Section):
    """The method that draws candidates around the base."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"radius_source", "rank", "target_modules"})

    name: Name = Field(min_length=1)
    """Registered name: `modular_norm`, `randopt`, `base`, or an ablation (docs/methods.md)."""
    radius: Float = Field(default=0.0, validation_alias=AliasChoices("radius", "sigma"))
    """R of the modular norm, or sigma of isotropic noise; `randopt` also takes the name `sigma`.

    0 stands for a missing radius; only `base` has none. A user's spec may contain an artifact
    instead: `{artifact: FILE}`.
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
    def _read_radius(cls, data: object) -> object:
        """Check sigma, and move an artifact from the field of the radius to `radius_source`."""
        if not isinstance(data, Mapping):
            return data
        if "sigma" in data and "name" in data:
            _check_sigma(data)
        for name in ("radius", "sigma"):
            given = data.get(name)
            if isinstance(given, str) and given.endswith(".json"):
                raise field_fault(name, f"must be a number or `{{artifact: {given}}}`")
            if isinstance(given, Mapping):
                _check_artifact(name, given)
                others = {key: value for key, value in data.items() if key != name}
                return {**others, "radius_source": given}
        return data

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
    """Prompts: the first selection rows."""
    layers_per_example: Int = Field(default=4, ge=1, le=MAX_COUNT)
    """Layers that each prompt measures."""
    max_length: Int = Field(default=128, ge=1, le=MAX_COUNT)
    """Leading prompt tokens."""
    iterations: Int = Field(default=3, ge=1, le=100)
    """JVP/VJP steps before the last JVP."""
    quantile: Float = Field(default=0.9, ge=0, le=1)
    """Quantile of a layer's estimates that is its sensitivity."""
    seed: Int = Field(default=1729, ge=0, le=MAX_SEED)
    """Seed of the start vectors."""
    maps: Literal["default", "published"] = "default"
    """`published`: for Gemma 3, the attention and MLP maps norm their input twice, as published.

    Other families have no such difference.
    """


def _radius_fault(radius: float) -> str:
    """Return what is wrong with a radius; 0 is the default of a radius that is not given."""
    if radius == 0:
        return (
            "must be given, above 0: the scale of the noise (`sigma` for randopt), or `{artifact: "
            "FILE}` with the radius.json that `modnorm tune` or `modnorm match` will write"
        )
    return f"must be from {MIN_RADIUS:g} to {MAX_RADIUS:g}, not {radius:g}"


def _check_sigma(data: Mapping[str, object]) -> None:
    """Refuse sigma for other methods than randopt; the message shows a misspelt name."""
    if data["name"] != "randopt":
        hint = did_you_mean(str(data["name"]), ["randopt"])
        raise field_fault(
            "sigma",
            f"sigma is the radius of randopt, but the name is {data['name']!r}; "
            f"use radius, or correct the name{f': {hint}' if hint else ''}",
        )
    if "radius" in data:
        raise field_fault("sigma", "is another name of radius, which is set too; leave one out")


def _check_artifact(name: str, given: Mapping[str, object]) -> None:
    """Check the two fields of an artifact under the name that the user wrote."""
    for key in given.keys() - {"artifact", "transfer"}:
        raise field_fault(f"{name}.{key}", "there is no such field here, only artifact, transfer")
    artifact = given.get("artifact")
    if not isinstance(artifact, str) or not artifact:
        raise field_fault(name, "must be a number or `{artifact: FILE}`")
    if not isinstance(given.get("transfer", False), bool):
        raise field_fault(f"{name}.transfer", "must be true or false")


_TWO_SIDED: Mapping[str, Mapping[str, object]] = {
    "method": {"radius": 0.001},
    "population": {"size": 2},
    "iterative": {"updates": 1500, "rate": 1e-6, "report": "best"},
}
ITERATIVE_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "es": {
        "method": {"radius": 0.001},
        "population": {"size": 30},
        "iterative": {"updates": 100, "rate": 0.0005, "report": "last"},
    },
    "mezo": _TWO_SIDED,
    "zo_finetuner": _TWO_SIDED,
}
"""Default sections of a spec for each iterative method (paper, app. D.1)."""
METHOD_DEFAULTS = {**ITERATIVE_DEFAULTS, "base": {"population": {"size": 1}}}
"""Default sections of a spec by method; all candidates of `base` are the base."""


class IterativeSpec(Section):
    """Training of a model by perturbations alone (paper, app. D.1; docs/baselines.md)."""

    updates: Int = Field(ge=1, le=100_000)
    """Updates of the model; 100 for ES, 1,500 for the others."""
    rate: Float = Field(gt=0, le=1e6)
    """alpha of ES, learning rate of the others."""
    report: Literal["last", "best"]
    """The state that answers the held-out rows: the last, or the best on the development rows.

    The best has the highest accuracy, then mean reward, then the fewest updates.
    """
    development: Rows | None = None
    """Rows that choose the reported state."""
    evaluate_every: Int = Field(default=100, ge=1, le=MAX_COUNT)
    """Updates between two evaluations on the development rows.

    The first is before any update; the last state is always evaluated.
    """
    monitor: tuple[Int, ...] = ()
    """Updates after which the held-out rows are also answered; this chooses nothing."""
    rounding: Literal["once", "published"] = "once"
    """`published`: updates and perturbations of ES are also rounded before they are added."""
    generator: str | None = None
    """File of the prepared generator of `zo_finetuner`."""

    @model_validator(mode="after")
    def _states_are_known(self) -> Self:
        if (self.report == "best") != (self.development is not None):
            raise field_fault(
                "development",
                "development rows choose the best state: name them"
                if self.development is None
                else "these rows choose nothing; set report to best, or remove them",
            )
        if sorted(set(self.monitor)) != list(self.monitor):
            raise field_fault("monitor", "must be distinct and ascending")
        if self.monitor and not 0 <= self.monitor[0] <= self.monitor[-1] <= self.updates:
            raise field_fault("monitor", f"must be from 0 to {self.updates}")
        return self
