"""The lineage: a trained model as steps of seeds and coefficients applied to a base.

A step with seeds `s_i` changes an element `w` of physical tensor `p` to

    round_to_dtype( fl32( w + u ) )
    u = fl32( rate * sum_i fl32( coefficient_i * fl32( a_p * z_i ) ) )

The sum is computed in fp32 in the order of the seeds, `z_i` is the noise of `s_i`, and `a_p` is
the tensor's amplitude, 1 by default. So a few numbers a step rebuild the model bit for bit, if the
noise is portable. With the rounding `published` the update `u`, and a candidate's perturbation,
are rounded to the weight dtype before they are added.

This module does not need torch.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from math import isfinite
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import canonical_json

_EXACT = ConfigDict(extra="forbid", strict=True)
NO_LINEAGE = ""
"""The digest of the base model on disk."""


class Rounding(StrEnum):
    """Whether a perturbation or an update is rounded before it is added to a weight."""

    ONCE = "once"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Step:
    """One update of the model.

    All numbers except `scores` and `normaliser` have float32 values.
    """

    __pydantic_config__: ClassVar = _EXACT

    kind: str
    """The method that made the step: `es`, `mezo`, `zo_finetuner`."""
    seeds: tuple[int, ...]
    coefficients: tuple[float, ...]
    """One for each seed."""
    rate: float
    scores: tuple[float | None, ...] = ()
    """Mean reward of each candidate that the step was computed from; None if it failed."""
    amplitudes: tuple[float, ...] = ()
    """One for each physical tensor, in canonical order; empty if all are 1."""
    normaliser: float = 1.0
    """The factor that the evaluator multiplied the amplitudes by."""

    def __post_init__(self) -> None:
        if len(self.coefficients) != len(self.seeds):
            raise _malformed(f"{len(self.coefficients)} coefficients for {len(self.seeds)} seeds")
        numbers = (self.rate, *self.coefficients, *self.amplitudes)
        scores = (score for score in self.scores if score is not None)
        if not all(map(isfinite, (*numbers, *scores, self.normaliser))):
            raise _malformed("a number of the step is not finite")
        if any(number != as_float32(number) for number in numbers):
            raise _malformed("a number of the step is not a float32")

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, no blanks, floats that round-trip."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Step":
        try:
            return _step_adapter().validate_json(text)
        except ValidationError as error:
            raise _malformed(str(error)) from error


@dataclass(frozen=True)
class Lineage:
    """A base model and the steps that lead from it to a trained state."""

    __pydantic_config__: ClassVar = _EXACT

    model_digest: str
    """Digest of the checkpoint."""
    noise: str
    """Noise scheme by name."""
    rounding: Rounding = Rounding.ONCE
    steps: tuple[Step, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the state; equal states have equal digests."""
        return self.digests[-1]

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """Digests of the state before the first step and after each step, a hash chain."""
        origin = f"{self.model_digest}\n{self.noise}\n{self.rounding}"
        chain = [hashlib.sha256(origin.encode()).hexdigest()]
        for step in self.steps:
            chain.append(next_digest(chain[-1], step))
        return tuple(chain)

    def extended(self, *steps: Step) -> "Lineage":
        lineage = replace(self, steps=(*self.steps, *steps))
        digests = list(self.digests)
        for step in steps:
            digests.append(next_digest(digests[-1], step))
        # Keep the computed chain: a long run reads the last digest after each step.
        lineage.__dict__["digests"] = tuple(digests)
        return lineage

    def until(self, count: int) -> "Lineage":
        """Return the lineage of the first `count` steps."""
        lineage = replace(self, steps=self.steps[:count])
        lineage.__dict__["digests"] = self.digests[: count + 1]
        return lineage

    def missing(self, state: str) -> tuple[Step, ...] | None:
        """Return the steps that lead from a state to this one; None if none do."""
        if state == NO_LINEAGE:
            return self.steps
        if state not in self.digests:
            return None
        return self.steps[self.digests.index(state) :]

    def stages(self, state: str | None, seeds: int) -> Iterator["Lineage"]:
        """Yield intermediate lineages between a state and this one, this one last."""
        missing = None if state is None else self.missing(state)
        first = 0 if missing is None else len(self.steps) - len(missing)
        pending = 0
        for count in range(first, len(self.steps) - 1):
            pending += len(self.steps[count].seeds)
            if pending >= seeds:
                yield self.until(count + 1)
                pending = 0
        yield self

    def to_json(self) -> str:
        steps = ",".join(step.to_json() for step in self.steps)
        head = canonical_json(
            {"model_digest": self.model_digest, "noise": self.noise, "rounding": self.rounding}
        )
        return f'{head[:-1]},"steps":[{steps}]}}'

    @classmethod
    def from_json(cls, text: str) -> "Lineage":
        try:
            return _lineage_adapter().validate_json(text)
        except ValidationError as error:
            raise InvalidInputError(f"not a lineage: {error}", field="lineage") from error


@cache
def _step_adapter() -> TypeAdapter[Step]:
    """Return the parser of a step; cached, since it takes milliseconds to build."""
    return TypeAdapter(Step)


@cache
def _lineage_adapter() -> TypeAdapter[Lineage]:
    return TypeAdapter(Lineage)


def next_digest(state: str, step: Step) -> str:
    return hashlib.sha256(f"{state}\n{step.to_json()}".encode()).hexdigest()


def as_float32(value: float) -> float:
    """Round a number to the nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def all_float32(values: Sequence[float]) -> tuple[float, ...]:
    """Round each number to the nearest float32."""
    return tuple(map(as_float32, values))


def _malformed(message: str) -> InvalidInputError:
    return InvalidInputError(message, field="lineage.steps")
