"""What an inference library raises, as this project's errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from modnorm.errors import EngineError


@contextmanager
def engine_failures(what: str) -> Iterator[None]:
    """Turn failures of torch, CUDA or the machine into `EngineError`.

    Args:
        what: What was being done, for the message.

    Raises:
        EngineError: memory ran out, a kernel failed, a file could not be read.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        raise EngineError(f"{what} failed: {error}") from error
