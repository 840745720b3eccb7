"""The spec of one experiment."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from modnorm.limits import MAX_TWO_SIDED_SEED
from modnorm.spec.iterative import ITERATIVE_DEFAULTS, IterativeSpec
from modnorm.spec.method import CalibrationSpec, MethodSpec
from modnorm.spec.population import PopulationSpec
from modnorm.spec.running import EngineSpec, FailureSpec
from modnorm.spec.section import Name, Named, Section, field_fault, named
from modnorm.spec.task import ModelSpec, TaskSpec


class ExperimentSpec(Section):
    """Model, task, method, N, prefixes, K list and seed: everything that defines an experiment."""

    later: ClassVar[frozenset[str]] = frozenset({"iterative"})

    name: Name = Field(default="", max_length=200)
    """A label for people."""
    model: Annotated[ModelSpec, Named]
    task: TaskSpec
    method: Annotated[MethodSpec, Named]
    population: PopulationSpec
    calibration: CalibrationSpec = CalibrationSpec()
    engine: Annotated[EngineSpec, Named] = EngineSpec()
    failures: FailureSpec = FailureSpec()
    iterative: IterativeSpec | None = None
    """Settings of an iterative method; None for all others."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_iterative(cls, data: object) -> object:
        """Give an iterative method its sections, each with the paper's settings."""
        method = named(data.get("method")) if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(method, Mapping):
            return data
        name = method.get("name")
        if isinstance(name, str) and data.get("iterative") is not None:
            _check_makes_updates(name)  # before the fields of a section that is not for it
        defaults = ITERATIVE_DEFAULTS.get(str(name), {})
        given = {**data, "method": method}
        return {**given, **{name: _over(given.get(name), part) for name, part in defaults.items()}}

    @model_validator(mode="after")
    def _iterative_fits(self) -> Self:
        name, population = self.method.name, self.population
        if self.iterative is None:
            return self
        _check_makes_updates(name)
        if population.prefixes or population.ensemble_sizes != (1,):
            raise field_fault("population", f"{name} trains one model: no prefixes, no ensembles")
        if population.statistics != "full":
            raise field_fault("population.statistics", f"{name} needs every reward: full")
        if name != "es" and population.size != 2:
            raise field_fault("population.size", f"{name} has two sides a step: 2")
        if name != "es" and population.seed > MAX_TWO_SIDED_SEED:
            raise field_fault("population.seed", f"must be at most {MAX_TWO_SIDED_SEED}")
        if name != "es" and self.iterative.rounding != "once":
            raise field_fault("iterative.rounding", f"{name} rounds once")
        if (name == "zo_finetuner") != (self.iterative.generator is not None):
            raise field_fault("iterative.generator", "zo_finetuner needs one, no other method")
        if name == "zo_finetuner" and self.engine.tensor_parallel_size > 1:
            raise field_fault(
                "engine.tensor_parallel_size", "zo_finetuner needs the whole model on one GPU: 1"
            )
        return self

    @property
    def work(self) -> Self:
        """The spec without what changes no answer: when to give up."""
        return self.model_copy(update={"failures": FailureSpec()})

    def takes_over_from(self, other: Self) -> bool:
        """Tell whether complete answers of another spec are answers of this one.

        They are where the work is the same, or the same but for what the other leaves out and
        this one does not.
        """
        return self.work in (other.work, other.leaving_out_nothing.work)

    @property
    def leaving_out_nothing(self) -> Self:
        """The spec with full statistics."""
        population = self.population.model_copy(update={"statistics": "full"})
        return self.model_copy(update={"population": population})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: equal digests mean the same experiment."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _check_makes_updates(name: str) -> None:
    if name not in ITERATIVE_DEFAULTS:
        others = ", ".join(ITERATIVE_DEFAULTS)
        raise field_fault(
            "iterative", f"{name} makes no updates, only {others} do; name one, or leave this out"
        )


def _over(given: object, defaults: Mapping[str, object]) -> object:
    """Return a section over its defaults; what is no section is left to be refused."""
    if given is None:
        return dict(defaults)
    return {**defaults, **given} if isinstance(given, Mapping) else given
