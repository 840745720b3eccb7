"""The lineage: a trained model as steps of seeds and coefficients applied to a base.

An element of physical tensor `p`, of weight `w`, becomes by a step with seeds `s_i`

    round_to_dtype( fl32( w + u ) )
    u = fl32( rate * sum_i fl32( coefficient_i * fl32( a_p * z_i ) ) )

where the sum is taken in fp32 in the order of the seeds, `z_i` is the noise of `s_i`, and `a_p` is
the tensor's amplitude where the step has any. So a few numbers a step rebuild the model, bit for
bit, wherever the noise is portable; no weights ever travel. With the rounding `published` the
update `u` is rounded to the weight dtype before it is added, and so is a candidate's perturbation.

Nothing here needs torch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from math import isfinite
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from modnorm.errors import InvalidInputError

_EXACT = ConfigDict(extra="forbid", strict=True)
NO_LINEAGE = ""
"""Digest that stands for the base model as it is on disk."""


class Rounding(StrEnum):
    """How often a perturbation or an update is rounded on its way into a weight."""

    ONCE = "once"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Step:
    """One update of the model; all its numbers but `scores` and `normaliser` are float32."""

    __pydantic_config__: ClassVar = _EXACT

    kind: str
    """The method that made it: `es`, `mezo`, `zo_finetuner`."""
    seeds: tuple[int, ...]
    coefficients: tuple[float, ...]
    """One a seed."""
    rate: float
    scores: tuple[float | None, ...] = ()
    """What it follows from: the mean reward of each candidate; None where one failed."""
    amplitudes: tuple[float, ...] = ()
    """One a physical tensor, in canonical order; none where all are 1."""
    normaliser: float = 1.0
    """What the amplitudes were multiplied with, by whoever proposed them."""

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
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Step":
        """Read what `to_json` wrote.

        Raises:
            InvalidInputError: it is something else.
        """
        try:
            return _steps().validate_json(text)
        except ValidationError as error:
            raise _malformed(str(error)) from error


@dataclass(frozen=True)
class Lineage:
    """A base model and the steps that were taken from it."""

    __pydantic_config__: ClassVar = _EXACT

    model_digest: str
    """Digest of the checkpoint."""
    noise: str
    """Noise scheme by name."""
    rounding: Rounding = Rounding.ONCE
    steps: tuple[Step, ...] = ()

    @property
    def digest(self) -> str:
        """What equal states are known by."""
        return self.digests[-1]

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """Digest of the state before the first step and after each one, a hash chain."""
        origin = f"{self.model_digest}\n{self.noise}\n{self.rounding}"
        found = [hashlib.sha256(origin.encode()).hexdigest()]
        for step in self.steps:
            found.append(next_digest(found[-1], step))
        return tuple(found)

    def extended(self, *steps: Step) -> "Lineage":
        """Return the lineage with further steps at its end."""
        found = replace(self, steps=(*self.steps, *steps))
        digests = list(self.digests)
        for step in steps:
            digests.append(next_digest(digests[-1], step))
        # The chain before the new steps is known: a long run asks for its end after each step.
        found.__dict__["digests"] = tuple(digests)
        return found

    def until(self, count: int) -> "Lineage":
        """Return the lineage of the first `count` steps."""
        found = replace(self, steps=self.steps[:count])
        found.__dict__["digests"] = self.digests[: count + 1]
        return found

    def missing(self, state: str) -> tuple[Step, ...] | None:
        """Return the steps from a state, by digest, to this one; None if it is not on the way."""
        if state == NO_LINEAGE:
            return self.steps
        if state not in self.digests:
            return None
        return self.steps[self.digests.index(state) :]

    def stages(self, state: str | None, seeds: int) -> Iterator["Lineage"]:
        """Yield the lineages of some states on the way from a state to this one, this one last.

        Args:
            state: Digest of the state; one that is not on the way is left by the first stage.
            seeds: Seeds of the steps between two stages, or those of one step if it has more.
        """
        missing = None if state is None else self.missing(state)
        known = 0 if missing is None else len(self.steps) - len(missing)
        taken = 0
        for count in range(known, len(self.steps) - 1):
            taken += len(self.steps[count].seeds)
            if taken >= seeds:
                yield self.until(count + 1)
                taken = 0
        yield self

    def to_json(self) -> str:
        """Return the canonical JSON."""
        steps = ",".join(step.to_json() for step in self.steps)
        head = json.dumps(
            {"model_digest": self.model_digest, "noise": self.noise, "rounding": self.rounding},
            sort_keys=True,
            separators=(",", ":"),
        )
        return f'{head[:-1]},"steps":[{steps}]}}'

    @classmethod
    def from_json(cls, text: str) -> "Lineage":
        """Read what `to_json` wrote.

        Raises:
            InvalidInputError: it is something else.
        """
        try:
            return _lineages().validate_json(text)
        except ValidationError as error:
            raise InvalidInputError(f"not a lineage: {error}", field="lineage") from error


@cache
def _steps() -> TypeAdapter[Step]:
    """Return what checks the JSON of a step; it takes milliseconds to make."""
    return TypeAdapter(Step)


@cache
def _lineages() -> TypeAdapter[Lineage]:
    """The same of a lineage."""
    return TypeAdapter(Lineage)


def next_digest(state: str, step: Step) -> str:
    """Return the digest of the state that a step leads to."""
    return hashlib.sha256(f"{state}\n{step.to_json()}".encode()).hexdigest()


def as_float32(value: float) -> float:
    """Round a number to the nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def all_float32(values: Sequence[float]) -> tuple[float, ...]:
    """Round numbers to the nearest float32 each."""
    return tuple(map(as_float32, values))


def _malformed(message: str) -> InvalidInputError:
    return InvalidInputError(message, field="lineage.steps")
