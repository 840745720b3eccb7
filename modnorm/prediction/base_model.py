"""The base model of an experiment, on this machine."""

from dataclasses import dataclass

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError
from modnorm.spec import ModelSpec

_FIELD = "model"
_REMEDY = "name where it is on this machine with --model, its commit with --revision"


@dataclass(frozen=True, slots=True)
class BasePlace:
    """Name and revision of a base on this machine; None means as in the spec."""

    name: str | None = None
    revision: str | None = None

    def find(self, model: ModelSpec, digest: str) -> Checkpoint:
        """Return the base of an experiment."""
        found = self._resolve(model)
        if found.digest != digest:
            raise ConflictError(
                f"{found.name} is not the model that the experiment started with: "
                f"{found.digest[:32]}, not {digest[:32]}",
                field=_FIELD,
                remedy=_REMEDY,
            )
        return found

    def _resolve(self, model: ModelSpec) -> Checkpoint:
        named = model.revision if self.name is None else None
        try:
            return resolve_checkpoint(self.name or model.name, self.revision or named)
        except (InvalidInputError, UnavailableError) as error:
            kind = type(error)
            raise kind(error.message, field=_FIELD, remedy=_REMEDY) from error
