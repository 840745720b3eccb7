"""Settings of a distillation: search, harvest and training in rounds (docs/distillation.md)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from modnorm.spec.section import Float, Int, Section, field_fault
from modnorm.spec.task import Rows
from modnorm.spec.training import TrainingSpec

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
