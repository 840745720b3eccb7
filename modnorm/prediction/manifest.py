"""The portable manifest of an ensemble: a file that rebuilds its checkpoints anywhere.

It names the base by digest, and holds the scale map and, for each expert, its descriptor and the
SHA-256 of descriptor and weights. One example prompt shows whether task and chat template still
make the same tokens.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import ConflictError, InvalidInputError, NotFoundError
from modnorm.files import read_fault, read_text
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import candidate_digests
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.spec.search_sections import Digest
from modnorm.spec.section import located_fault
from modnorm.tasks.row_files import Raw
from modnorm.tasks.row_loading import parse_question

_MOST_BYTES = 2**24
_FIELD = "manifest"


class ExamplePrompt(BaseModel):
    """An example question and the digest of its prompt's tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: dict[str, object]
    tokens_sha256: Digest

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


@dataclass(frozen=True, slots=True)
class EnsembleManifest:
    """An ensemble with the means to verify it: the content of the file."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    ensemble: EnsembleDefinition
    prompt: ExamplePrompt
    descriptors_sha256: tuple[Digest, ...]
    """Digest of each expert's descriptor, best-ranked expert first."""
    weights_sha256: tuple[Digest, ...]
    """Digest of each expert's weights, in the same order. Only `rebuild` makes all weights."""
    format: Literal["modnorm-ensemble-3"]

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


_CONTENT = TypeAdapter(EnsembleManifest)


def encode_manifest(manifest: EnsembleManifest) -> bytes:
    content = _CONTENT.dump_python(manifest, mode="json")
    return f"{json.dumps(content, sort_keys=True, allow_nan=False)}\n".encode()


def make_manifest(
    ensemble: EnsembleDefinition, base: Checkpoint, example: Raw
) -> EnsembleManifest:
    """Return the manifest of an ensemble; each expert's weights are made once, to digest them."""
    prompt = ExamplePrompt.of(ensemble, base, example)
    descriptors = [expert.descriptor for expert in ensemble.experts]
    return EnsembleManifest(
        ensemble,
        prompt,
        descriptors_sha256=tuple(map(descriptor_sha256, descriptors)),
        weights_sha256=candidate_digests(base, descriptors, ensemble.scale_map),
        format="modnorm-ensemble-3",
    )


def descriptor_sha256(descriptor: Descriptor) -> str:
    """Return the SHA-256 of a descriptor, all of whose fields it covers."""
    return hashlib.sha256(json.dumps(asdict(descriptor), sort_keys=True).encode()).hexdigest()


def read_ensemble_manifest(path: Path) -> EnsembleManifest:
    try:
        text = read_text(path, most=_MOST_BYTES)
        manifest = _CONTENT.validate_json(text)
    except ValidationError as error:
        raise _refused(path, located_fault(error)) from error
    except InvalidInputError as error:
        raise _refused(path, f"scale_map: {error.message}") from error
    except (OSError, ValueError) as error:
        raise _refused(path, read_fault(error)) from error
    ensemble = manifest.ensemble
    scale_map, experts = ensemble.scale_map, ensemble.experts
    if {len(manifest.descriptors_sha256), len(manifest.weights_sha256)} != {len(experts)}:
        raise _refused(path, "it does not state the digests of each expert")
    for place, (expert, sha256) in enumerate(
        zip(experts, manifest.descriptors_sha256, strict=True)
    ):
        descriptor = f"ensemble.experts.{place}.descriptor"
        if expert.descriptor.coefficients is None:
            raise _refused(path, f"{descriptor}.coefficients: must be given")
        if expert.descriptor.lineage:
            raise _refused(path, f"{descriptor}.lineage: must be empty")
        if descriptor_sha256(expert.descriptor) != sha256:
            raise _refused(path, f"{descriptor}: has another SHA-256 than the manifest states")
    stated = {expert.descriptor.scale_map for expert in experts}
    if stated != {scale_map.digest} or scale_map.model_digest != ensemble.model_digest:
        raise _refused(path, "its scale map has another digest, or model, than it states")
    return manifest


def _refused(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} is no manifest of an ensemble: {reason}",
        field=_FIELD,
        remedy="name a file that `modnorm export --manifest` of this version wrote; export again",
    )


def _tokens_sha256(ensemble: EnsembleDefinition, base: Checkpoint, question: Raw) -> str:
    tokens = PromptEncoder(base).encode(ensemble.task.load().messages(question))
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
