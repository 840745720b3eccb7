"""Settings of iterative baselines, which train a model by perturbations alone."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from modnorm.spec.section import Float, Int, Section, field_fault
from modnorm.spec.task import Rows
from modnorm.spec_limits import MAX_COUNT

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
"""Default sections of a spec for each iterative method (paper, app. E.1)."""


class IterativeSpec(Section):
    """Training of a model by perturbations alone (paper, app. E.1; docs/baselines.md)."""

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
    """Updates between two evaluations on the development rows, the first before any update."""
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
