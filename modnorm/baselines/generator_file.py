"""Reading of a prepared generator's file, without torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import CanonicalDocument, canonical_json
from modnorm.spec.section import located_fault

SCHEMA: Literal["modnorm-generator-1"] = "modnorm-generator-1"
WEIGHTS = ("inner", "inner_bias", "outer", "outer_bias")
"""Names of the weights, each little-endian fp32 in base64."""


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    form: Literal["modnorm-generator-1"] = Field(alias="schema")
    tensors: list[tuple[str, list[int]]]
    weights: dict[str, str]
    preparation: dict[str, object]


@dataclass(frozen=True)
class GeneratorFile(CanonicalDocument):
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each physical tensor of its model."""
    weights: dict[str, str]

    def check_model(self, tensors: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Refuse a generator of a model with other tensors."""
        if self.tensors != tuple(tensors):
            raise unusable_generator("the generator is of a model with other tensors")


def read_generator(text: str) -> GeneratorFile:
    """Parse the JSON of a generator."""
    try:
        data = json.loads(text)
        content = _Content.model_validate(data)
        canonical = canonical_json(data)
    except ValidationError as error:
        raise unusable_generator(f"not a generator: {located_fault(error)}") from error
    except (RecursionError, ValueError) as error:
        raise unusable_generator(f"not a generator: {error}") from error
    if content.weights.keys() != set(WEIGHTS):
        raise unusable_generator(f"the weights of a generator are {', '.join(WEIGHTS)}")
    tensors = tuple((name, tuple(shape)) for name, shape in content.tensors)
    return GeneratorFile(canonical, tensors, content.weights)


def unusable_generator(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="iterative.generator",
        remedy="use a generator that was prepared on this model: modnorm prepare",
    )
