"""Exceptions of inference libraries as errors of this project."""

from collections.abc import Iterator
from contextlib import contextmanager

from modnorm.errors import EngineError


@contextmanager
def engine_failures(action: str) -> Iterator[None]:
    """Convert failures of torch, CUDA or the machine inside the context to `EngineError`.

    Raises:
        EngineError: memory ran out, a kernel failed, a file could not be read.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        raise EngineError(f"{action} failed: {error}") from error


def not_the_base(cause: str) -> EngineError:
    """Return the error of an engine whose weights are neither base nor candidate.

    It is unknown which of its copies is right, so the weights are not repaired.
    """
    return EngineError(
        f"the weights are not the base any more: {cause}", remedy="load the model again"
    )
