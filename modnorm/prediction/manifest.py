"""The portable manifest of an ensemble: a few kilobytes that rebuild its checkpoints anywhere.

It names the base by digest, and holds scale map, descriptors and the SHA-256 of each expert's
weights. One example prompt shows whether task and chat template still make the same tokens.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import ConflictError, InvalidInputError, NotFoundError
from modnorm.files import read_fault, read_text
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.adapters import candidate_digests
from modnorm.perturbation.descriptor import Descriptor
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.spec import ModelSpec
from modnorm.spec.section import plain_words
from modnorm.tasks.row_files import Raw
from modnorm.tasks.row_loading import parse_question

_MOST_BYTES = 2**24
_FIELD = "manifest"
SCHEMA: Literal["modnorm-ensemble-1"] = "modnorm-ensemble-1"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(_Part):
    """The base model."""

    name: str = Field(min_length=1)
    revision: str | None
    sha256: Sha256


class ExamplePrompt(_Part):
    """An example question and the digest of its prompt's tokens."""

    question: dict[str, object]
    tokens_sha256: Sha256

    @classmethod
    def of(cls, ensemble: EnsembleDefinition, base: Checkpoint, raw: Raw) -> "ExamplePrompt":
        """Return the example of a raw row, without its right answer."""
        question = dict(parse_question(ensemble.task.load(), raw, "the example"))
        digest = _tokens_sha256(ensemble, base, question)
        return cls(question=question, tokens_sha256=digest)

    def check(self, ensemble: EnsembleDefinition, base: Checkpoint) -> None:
        """Refuse a task or template that makes another prompt."""
        if _tokens_sha256(ensemble, base, self.question) != self.tokens_sha256:
            raise ConflictError(
                f"task {ensemble.task.name} makes another prompt here than where the manifest "
                "was written",
                field=_FIELD,
                remedy="use the version of modnorm, or of the task, that wrote it",
            )


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
    task: TaskIdentity
    prompt: ExamplePrompt
    population: int = Field(ge=1)
    experts: tuple[ExpertPart, ...] = Field(min_length=1)
    scale_map: ScaleMapPart


@dataclass(frozen=True, slots=True)
class EnsembleManifest:
    """An ensemble with the means to verify it."""

    ensemble: EnsembleDefinition
    prompt: ExamplePrompt
    weights_sha256: tuple[str, ...]
    """Digest of each expert's weights, best-ranked expert first."""

    def narrowed(self, population: int | None, size: int | None) -> EnsembleDefinition:
        """Return the ensemble of the first K experts."""
        most = self.ensemble.ensemble_size
        is_of_population = population in {None, self.ensemble.population}
        if not is_of_population or (size is not None and not 1 <= size <= most):
            raise NotFoundError(
                "the manifest has no such ensemble",
                field="k" if is_of_population else "n",
                remedy=f"N={self.ensemble.population}, K from 1 to {most}",
            )
        return replace(self.ensemble, experts=self.ensemble.experts[:size])


def encode_manifest(manifest: EnsembleManifest) -> bytes:
    """Return a manifest as JSON."""
    ensemble = manifest.ensemble
    content = {
        "format": SCHEMA,
        "model": {
            "name": ensemble.model.name,
            "revision": ensemble.model.revision,
            "sha256": ensemble.model_digest,
        },
        "task": asdict(ensemble.task),
        "prompt": manifest.prompt.model_dump(),
        "population": ensemble.population,
        "experts": [
            _expert_entry(expert, digest)
            for expert, digest in zip(ensemble.experts, manifest.weights_sha256, strict=True)
        ],
        "scale_map": _scale_map_entry(ensemble.scale_map),
    }
    return f"{json.dumps(content, sort_keys=True, allow_nan=False)}\n".encode()


def make_manifest(
    ensemble: EnsembleDefinition, base: Checkpoint, example: Raw
) -> EnsembleManifest:
    """Return the manifest of an ensemble; each expert's weights are made once, to digest them."""
    prompt = ExamplePrompt.of(ensemble, base, example)
    descriptors = [expert.descriptor for expert in ensemble.experts]
    return EnsembleManifest(
        ensemble, prompt, candidate_digests(base, descriptors, ensemble.scale_map)
    )


def read_ensemble_manifest(path: Path) -> EnsembleManifest:
    """Read a manifest."""
    try:
        content = ManifestContent.model_validate_json(read_text(path, most=_MOST_BYTES))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        words = plain_words(fault)
        raise _refused(path, f"{where}: {words}" if where else words) from error
    except (OSError, ValueError) as error:
        raise _refused(path, read_fault(error)) from error
    scale_map = _scale_map(path, content)
    experts = tuple(_expert(path, part, scale_map) for part in content.experts)
    ensemble = EnsembleDefinition(
        model=ModelSpec(name=content.model.name, revision=content.model.revision),
        model_digest=content.model.sha256,
        task=content.task,
        scale_map=scale_map,
        population=content.population,
        experts=experts,
    )
    digests = tuple(part.weights_sha256 for part in content.experts)
    return EnsembleManifest(ensemble, content.prompt, digests)


def _refused(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is no manifest of an ensemble: {reason}",
        field=_FIELD,
        remedy="name a file that `modnorm export --manifest` wrote",
    )


def _tokens_sha256(ensemble: EnsembleDefinition, base: Checkpoint, question: Raw) -> str:
    tokens = PromptEncoder(base).encode(ensemble.task.load().messages(question))
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()


def _expert_entry(expert: Expert, digest: str) -> dict[str, object]:
    descriptor = expert.descriptor
    coefficients = np.asarray(descriptor.coefficients, dtype="<f4")
    return {
        "candidate": expert.index,
        "noise": descriptor.noise,
        "seed": descriptor.seed,
        "method": descriptor.method,
        "radius": descriptor.radius,
        "coefficients": b64encode(coefficients.tobytes()).decode(),
        "weights_sha256": digest,
    }


def _expert(path: Path, part: ExpertPart, scale_map: ScaleMap) -> Expert:
    try:
        values = np.frombuffer(b64decode(part.coefficients, validate=True), dtype="<f4")
    except (Base64Error, ValueError) as error:
        raise _refused(path, f"the coefficients of candidate {part.candidate}: {error}") from error
    coefficients = tuple(map(float, values))
    descriptor = Descriptor(
        part.noise, part.seed, part.method, part.radius, scale_map.digest, coefficients
    )
    return Expert(part.candidate, descriptor)


def _scale_map_entry(scale_map: ScaleMap) -> dict[str, object]:
    """Return a scale map with the names of its tensors' fields only once."""
    rest = json.loads(scale_map.to_json())
    tensors = rest.pop("tensors")
    columns = sorted(tensors[0]) if tensors else []
    return {
        "sha256": scale_map.digest,
        "columns": columns,
        "tensors": [[tensor[column] for column in columns] for tensor in tensors],
        "rest": rest,
    }


def _scale_map(path: Path, content: ManifestContent) -> ScaleMap:
    part = content.scale_map
    try:
        tensors = [dict(zip(part.columns, row, strict=True)) for row in part.tensors]
        scale_map = ScaleMap.from_json(json.dumps({**part.rest, "tensors": tensors}))
    except (ValueError, InvalidInputError) as error:
        raise _refused(path, f"scale_map: {error}") from error
    if (scale_map.digest, scale_map.model_digest) != (part.sha256, content.model.sha256):
        raise _refused(path, "its scale map has another digest, or model, than it states")
    return scale_map
