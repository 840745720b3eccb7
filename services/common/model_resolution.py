"""Resolution of the models that requests name."""

from collections.abc import Callable, Sequence
from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.errors import PreconditionError
from modnorm.v1 import common_pb2


def resolve_model(
    model: common_pb2.ModelRef,
    roots: Sequence[Path] | None,
    *,
    digest: str = "",
    on_bytes: Callable[[], None] | None = None,
) -> Checkpoint:
    """Return the checkpoint of a request's model.

    Local models must lie under the roots, unless these are None. An empty digest allows any model.
    `on_bytes` is called during a download.
    """
    revision = model.revision if model.HasField("revision") else None
    checkpoint = resolve_checkpoint(model.name, revision, roots=roots, on_bytes=on_bytes)
    if digest and digest != checkpoint.digest:
        raise PreconditionError(
            f"{checkpoint.name} has digest {checkpoint.digest[:12]} here, not {digest[:12]}",
            field="model_digest",
            remedy="give all services the same model files",
        )
    return checkpoint
