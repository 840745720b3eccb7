"""The spec of one experiment."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from modnorm.errors import InvalidInputError
from modnorm.files import json_digest
from modnorm.spec.search_sections import (
    ITERATIVE_DEFAULTS,
    MAX_MODEL_LEN,
    METHOD_DEFAULTS,
    CalibrationSpec,
    EngineSpec,
    FailureSpec,
    IterativeSpec,
    MethodSpec,
    ModelSpec,
    PopulationSpec,
    Rows,
    TaskSpec,
)
from modnorm.spec.section import Float, Int, Name, Named, Section, field_fault
from modnorm.spec_limits import MAX_COUNT, MAX_NAME, MAX_RANK, MAX_TWO_SIDED_SEED

MAX_BATCH = 2**20
"""Largest effective batch, in examples."""
_ADAPTER_FIELDS = ("rank", "alpha", "dropout")


class TrainingSpec(Section):
    """Supervised fine-tuning of one student; the defaults are those of iterative RandOpt.

    Source: sunrainyg/RandOpt, `config.py` and `stages/train.py`.
    """

    method: Literal["lora", "full"] = "lora"
    """`lora`: train a low-rank adapter and merge it; `full`: train all weights."""
    rank: Int = Field(default=192, ge=1, le=MAX_RANK)
    """Rank of the LoRA adapter."""
    alpha: Float | None = Field(default=None, gt=0, le=1e6)
    """Scale of the adapter times its rank; by default twice the rank, so 384."""
    dropout: Float = Field(default=0.05, ge=0, lt=1)
    """Share of the adapter's inputs that are set to zero in training."""
    learning_rate: Float = Field(default=1e-4, gt=0, le=1)
    """Peak learning rate of AdamW."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Course of the learning rate after the warm-up."""
    warmup: Float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises linearly from zero."""
    epochs: Float = Field(default=2.0, gt=0, le=10_000)
    """Passes over the dataset."""
    batch_size: Int = Field(default=1024, ge=1, le=MAX_BATCH)
    """Examples in one step of the optimizer; micro-batches follow from the memory."""
    max_length: Int | None = Field(default=None, ge=2, le=MAX_MODEL_LEN)
    """Longest example in tokens, prompt and completion; longer ones are left out and counted.

    By default the model's longest sequence.
    """
    checkpoint_steps: Int = Field(default=50, ge=1, le=MAX_COUNT)
    """Steps between two checkpoints, from which an interrupted training goes on."""

    @model_validator(mode="after")
    def _adapter_fields_fit(self) -> Self:
        for field in _ADAPTER_FIELDS if self.method == "full" else ():
            if getattr(self, field) != type(self).model_fields[field].default:
                raise field_fault(field, "full training has no adapter; use lora, or remove this")
        return self

    @property
    def adapter_alpha(self) -> float:
        """The scale of the adapter times its rank."""
        return 2.0 * self.rank if self.alpha is None else self.alpha


MAX_ROUNDS = 100
"""Largest number of rounds; the published run has four."""
MAX_SAMPLES = 1_000
"""Largest number of answers of an expert to a row; the published run has 16."""


class HarvestSpec(Section):
    """How the experts' answers to training rows become a dataset.

    The defaults are those of iterative RandOpt (sunrainyg/RandOpt, `config.py`).
    """

    experts: Int | None = Field(default=None, ge=1)
    """Experts that answer, one of `population.ensemble_sizes`; by default the largest."""
    temperature: Float = Field(default=1.0, ge=0, le=10)
    """0 for greedy answers, else the divisor of the logits."""
    top_p: Float = Field(default=0.95, gt=0, le=1)
    """Tokens are drawn from the likeliest whose probabilities add up to this; 1 for all.

    Greedy answers do not use it.
    """
    samples: Int = Field(default=16, ge=1, le=MAX_SAMPLES)
    """Answers of each expert to each row."""
    keep: Int = Field(default=8, ge=1, le=MAX_SAMPLES)
    """Most answers kept of a row: those that agree with the vote first, then the shorter."""
    only_wrong: bool = False
    """Whether only rows count whose greedy answer by the searched model is wrong."""
    accumulate: bool = True
    """Whether a dataset also holds the examples of earlier rounds."""

    @model_validator(mode="after")
    def _greedy_answers_once(self) -> Self:
        if self.temperature == 0 and self.samples != 1:
            raise field_fault("samples", "must be 1: greedy answers do not vary")
        return self


class DistillationSpec(Section):
    """Rounds of search, harvest and training of one student."""

    rounds: Int = Field(default=4, ge=1, le=MAX_ROUNDS)
    """Number of rounds."""
    rows: Rows
    """Training rows, which the experts answer. They share no prompt with any other rows."""
    development: Rows
    """Rows that choose the best round. Held-out rows choose nothing."""
    harvest: HarvestSpec = HarvestSpec()
    search_around: Literal["student", "base"] = "student"
    """Model that the searches after the first perturb: the last student, or always the base."""
    train_from: Literal["base", "student"] = "base"
    """Model whose training makes a student: always the base, or the last student."""
    training: TrainingSpec = TrainingSpec()


def suffixed(name: str, suffix: str) -> str:
    """Return the name of an experiment that another one makes; a long name is cut."""
    return f"{name[: MAX_NAME - len(suffix) - 1]} {suffix}".strip()


class ExperimentSpec(Section):
    """The whole definition of an experiment: model, task, method, N, prefixes, K list, seed."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"iterative", "distillation", "reuse"})

    name: Name = Field(default="", max_length=MAX_NAME)
    """A label."""
    model: Annotated[ModelSpec, Named]
    task: TaskSpec
    method: Annotated[MethodSpec, Named]
    population: PopulationSpec
    calibration: CalibrationSpec = CalibrationSpec()
    engine: Annotated[EngineSpec, Named] = EngineSpec()
    failures: FailureSpec = FailureSpec()
    iterative: IterativeSpec | None = None
    """Settings of an iterative method; None for other methods."""
    distillation: DistillationSpec | None = None
    """Rounds that train a student on the experts' answers; None for a search alone."""
    reuse: bool = True
    """Whether finished evaluations of equal content are taken. Timings need `false`."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_defaults(cls, data: object) -> object:
        """Add the default settings of the method, for iterative ones those of the paper."""
        method = data.get("method") if isinstance(data, Mapping) else None
        if isinstance(method, str):
            method = {"name": method}
        if not isinstance(data, Mapping) or not isinstance(method, Mapping):
            return data
        name = method.get("name")
        if isinstance(name, str) and data.get("iterative") is not None:
            _check_makes_updates(name)  # before pydantic checks the fields of the section
        defaults = METHOD_DEFAULTS.get(str(name), {})
        content = {**data, "method": method}
        sections = {name: _merge(content.get(name), part) for name, part in defaults.items()}
        return {**content, **sections}

    @model_validator(mode="after")
    def _iterative_fits(self) -> Self:
        name, population = self.method.name, self.population
        if self.iterative is None:
            return self
        _check_makes_updates(name)
        if population.prefixes or population.ensemble_sizes != (1,):
            raise field_fault("population", f"{name} trains one model: no prefixes, no ensembles")
        if name == "es" and population.size == 1:
            raise field_fault("population.size", "must be at least 2: es compares candidates")
        if name != "es" and population.size != 2:
            raise field_fault(
                "population.size", f"must be 2: {name} evaluates two sides in each step"
            )
        if name != "es" and population.seed > MAX_TWO_SIDED_SEED:
            raise field_fault("population.seed", f"must be at most {MAX_TWO_SIDED_SEED}")
        if name != "es" and self.iterative.rounding != "once":
            raise field_fault("iterative.rounding", f"{name} rounds once")
        if (name == "zo_finetuner") != (self.iterative.generator is not None):
            raise field_fault(
                "iterative.generator", "zo_finetuner requires it, no other method accepts it"
            )
        if name == "zo_finetuner" and self.engine.tensor_parallel_size > 1:
            raise field_fault(
                "engine.tensor_parallel_size",
                "must be 1: zo_finetuner needs the whole model on one GPU",
            )
        return self

    @model_validator(mode="after")
    def _distillation_fits(self) -> Self:
        if self.distillation is None:
            return self
        if self.iterative is not None or self.method.name == "base":
            raise field_fault(
                "distillation", f"{self.method.name} has no experts; name a method that searches"
            )
        sizes = self.population.ensemble_sizes
        experts = self.distillation.harvest.experts
        if experts is not None and experts not in sizes:
            raise field_fault(
                "distillation.harvest.experts",
                f"must be one of population.ensemble_sizes ({', '.join(map(str, sizes))})",
            )
        return self

    def require_search(self) -> None:
        """Refuse a distillation, which makes an experiment of each round."""
        if self.distillation is not None:
            raise InvalidInputError(
                "needs several experiments and a training",
                field="distillation",
                remedy="use `modnorm distil SPEC --out DIR`, or remove the section for a search",
            )

    @property
    def fixed(self) -> Self:
        """The spec without all that may change while its finished evaluations are reused.

        These are the name, the limits of failures, and of a search also N, prefixes and K list.
        """
        changes: dict[str, object] = {"name": "", "failures": FailureSpec(), "reuse": True}
        if self.iterative is None and self.distillation is None:
            kept = {name: getattr(self.population, name) for name in ("seed", "pool", "noise")}
            changes["population"] = PopulationSpec(size=1, **kept)
        return self.model_copy(update=changes)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal digests mean the same experiment."""
        return json_digest(self.model_dump(mode="json"))


def _check_makes_updates(name: str) -> None:
    if name not in ITERATIVE_DEFAULTS:
        others = ", ".join(ITERATIVE_DEFAULTS)
        raise field_fault(
            "iterative",
            f"{name} makes no updates, only {others} do; name one of these, or remove the section",
        )


def _merge(section: object, defaults: Mapping[str, object]) -> object:
    """Return a section with its defaults; anything but a mapping is returned for validation."""
    if section is None:
        return dict(defaults)
    return {**defaults, **section} if isinstance(section, Mapping) else section
