"""The radius artifact: measurements and the radius that they choose."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import canonical_json, read_fault, read_text
from modnorm.radius.artifact_schema import Document, GridDocument, MatchingDocument
from modnorm.spec import ExperimentSpec, RadiusSource
from modnorm.spec.section import plain_words

_DOCUMENT: TypeAdapter[GridDocument | MatchingDocument] = TypeAdapter(Document)
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class RadiusArtifact:
    """A radius artifact; two artifacts are equal if their canonical JSON is equal."""

    canonical: str
    """The document as JSON with sorted keys and no blanks."""

    @classmethod
    def of(cls, document: GridDocument | MatchingDocument) -> Self:
        """Return the artifact of a document."""
        return cls(canonical_json(document.model_dump(mode="json")))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an artifact in any formatting."""
        try:
            return cls.of(_DOCUMENT.validate_json(text))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            unnamed = fault.get("ctx", {}).get("discriminator", "").strip("'")
            path = ".".join(map(str, (*fault["loc"], unnamed))).strip(".")
            reason = plain_words(fault)
            location = f"{path}: " if path else ""
            raise _fault(f"not a radius artifact: {location}{reason}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an artifact's file."""
        try:
            text = read_text(path, most=_MAX_BYTES)
        except (OSError, ValueError) as error:
            raise _fault(f"cannot read {path}: {read_fault(error)}") from error
        return cls.from_json(text)

    def to_json(self) -> str:
        """Return the canonical JSON, whose SHA-256 is the digest."""
        return self.canonical

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @cached_property
    def document(self) -> GridDocument | MatchingDocument:
        """The content."""
        return _DOCUMENT.validate_json(self.canonical)

    def resolve(self, spec: ExperimentSpec) -> ExperimentSpec:
        """Return the spec with this artifact's radius and its source.

        It does not compare models: services compare the model's digest.
        """
        named = spec.method.radius_source
        transfer = named is not None and named.transfer
        self._check(spec, transfer=transfer)
        document = self.document
        grid = document.settings if isinstance(document, GridDocument) else None
        source = RadiusSource(
            artifact=self.digest,
            transfer=transfer,
            protocol=document.protocol,
            task=document.task,
            model_digest=document.model.digest,
            development_digest=grid.development_digest if grid else None,
            development_prompts=grid.development_prompts if grid else (),
        )
        method = {
            **spec.method.model_dump(mode="json"),
            "radius": self.document.radius,
            "radius_source": source.model_dump(mode="json"),
        }
        return spec.model_copy(update={"method": type(spec.method).model_validate(method)})

    def _check(self, spec: ExperimentSpec, *, transfer: bool) -> None:
        method, task = self.document.method, self.document.task
        if method.name != spec.method.name:
            raise _misfit(
                f"it is of method {method.name}, the spec is of {spec.method.name}",
                f"tune {spec.method.name}, or set a number",
            )
        if method.rank != spec.method.rank:
            raise _misfit(
                f"it is of {_rank(method.rank)}, the spec is of {_rank(spec.method.rank)}",
                "tune again with the rank of the spec, or set a number",
            )
        if method.target_modules != spec.method.target_modules:
            raise _misfit(
                f"its target_modules are {method.target_modules}, those of the spec are "
                f"{spec.method.target_modules}",
                "tune again with the target_modules of the spec, or set a number",
            )
        if method.masses != spec.method.masses:
            raise _misfit(
                "it was chosen with other masses", "tune again with the masses of the spec"
            )
        if task != spec.task.name and not transfer:
            raise _misfit(
                f"it was chosen on task {task}, the spec is of {spec.task.name}",
                "choose a radius on this task, or add `transfer: true` to the artifact",
            )


def _rank(rank: int | None) -> str:
    return "full rank" if rank is None else f"rank {rank}"


def _misfit(reason: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(
        f"the radius artifact cannot be used: {reason}", field="method.radius", remedy=remedy
    )


def _fault(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="method.radius",
        remedy="use the file that `modnorm tune` or `modnorm match` wrote, or a number",
    )
