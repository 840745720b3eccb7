"""The schema of an ensemble's manifest."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Literal["modnorm-ensemble-1"] = "modnorm-ensemble-1"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(_Part):
    """The base model."""

    name: str = Field(min_length=1)
    revision: str | None
    sha256: Sha256


class TaskPart(_Part):
    """The task that prompts and votes belong to."""

    name: str
    scorer: str
    declaration: str | None
    max_tokens: int = Field(ge=1, le=131_072)


class PromptPart(_Part):
    """An example question and the digest of its prompt's tokens."""

    question: dict[str, object]
    tokens_sha256: Sha256


class ExpertPart(_Part):
    """One expert, best first."""

    candidate: int = Field(ge=0)
    noise: str
    seed: int
    method: str
    radius: float
    coefficients: str
    """Base64 of the coefficients as little-endian float32."""
    weights_sha256: Sha256


class ScaleMapPart(_Part):
    """The scale map's JSON; each tensor is a list of values in the order of `columns`."""

    sha256: Sha256
    columns: tuple[str, ...]
    tensors: tuple[list[object], ...]
    rest: dict[str, object]
    """All fields but the tensors."""


class ManifestContent(_Part):
    """The content of a manifest."""

    format: Literal["modnorm-ensemble-1"]
    model: ModelPart
    task: TaskPart
    prompt: PromptPart
    population: int = Field(ge=1)
    experts: tuple[ExpertPart, ...] = Field(min_length=1)
    scale_map: ScaleMapPart
