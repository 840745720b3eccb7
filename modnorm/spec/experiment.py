"""The spec of one experiment."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from modnorm.files import json_digest
from modnorm.spec.distillation import DistillationSpec
from modnorm.spec.iterative import ITERATIVE_DEFAULTS, IterativeSpec
from modnorm.spec.method import CalibrationSpec, MethodSpec
from modnorm.spec.population import PopulationSpec
from modnorm.spec.running import EngineSpec, FailureSpec
from modnorm.spec.section import Name, Named, Section, field_fault, named
from modnorm.spec.task import ModelSpec, TaskSpec
from modnorm.spec_limits import MAX_NAME, MAX_TWO_SIDED_SEED


def suffixed(name: str, suffix: str) -> str:
    """Return the name of an experiment that another one makes; a long name is cut."""
    return f"{name[: MAX_NAME - len(suffix) - 1]} {suffix}".strip()


class ExperimentSpec(Section):
    """The whole definition of an experiment: model, task, method, N, prefixes, K list, seed."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"iterative", "distillation"})

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

    @model_validator(mode="before")
    @classmethod
    def _fill_in_iterative(cls, data: object) -> object:
        """Add the paper's settings to the sections of an iterative method."""
        method = named(data.get("method")) if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(method, Mapping):
            return data
        name = method.get("name")
        if isinstance(name, str) and data.get("iterative") is not None:
            _check_makes_updates(name)  # before pydantic checks the fields of the section
        defaults = ITERATIVE_DEFAULTS.get(str(name), {})
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
        if population.statistics != "full":
            raise field_fault("population.statistics", f"must be full: {name} needs every reward")
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

    @property
    def work(self) -> Self:
        """The spec without the limits of failures, which change no answer."""
        return self.model_copy(update={"failures": FailureSpec()})

    def can_reuse(self, other: Self) -> bool:
        """Return whether complete answers of another spec are answers of this one.

        That is so if the work is equal, also if only this one requests full statistics.
        """
        return self.work in (other.work, other.with_full_statistics.work)

    @property
    def with_full_statistics(self) -> Self:
        """The spec with full statistics."""
        population = self.population.model_copy(update={"statistics": "full"})
        return self.model_copy(update={"population": population})

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
