"""The models that requests name."""

from collections.abc import Sequence
from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.errors import PreconditionError
from modnorm.v1 import common_pb2


def resolve_model(
    model: common_pb2.ModelRef, roots: Sequence[Path] | None, *, digest: str = ""
) -> Checkpoint:
    """Find the model of a request.

    Args:
        model: Name and revision.
        roots: Directories of local models; anywhere when None.
        digest: Digest that the model must have; any when empty.

    Raises:
        InvalidInputError: there is no such model, or it is not supported.
        PreconditionError: it has another digest.
        UnavailableError: the Hugging Face Hub cannot be reached.
    """
    revision = model.revision if model.HasField("revision") else None
    checkpoint = resolve_checkpoint(model.name, revision, roots=roots)
    if digest and digest != checkpoint.digest:
        raise PreconditionError(
            f"{checkpoint.name} is model {checkpoint.digest[:12]} here, not {digest[:12]}",
            field="model_digest",
            remedy="give all services the same files of the model",
        )
    return checkpoint
