"""Why a worker in a process of its own does not start.

vLLM's executor raises that one did not, and leaves the reason to the worker's log. Here the worker
writes it to a file that its executor's process has named.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "MODNORM_WORKER_FAULT"
"""Names the file; processes that are started inherit it."""
_LOGGER = "vllm.v1.executor.multiproc_executor"
"""Where a worker logs the exception that ends it."""


class _Writer(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        kind = ValueError if isinstance(error, ValueError) else type(error)
        # What is there is the first rank's, or nobody waits for a start any more.
        with suppress(OSError), self._path.open("x", encoding="utf-8") as file:
            file.write(f"{kind.__name__}: {error}")


def write_faults() -> None:
    """Write to the file what ends this process, where it is a worker's; once a process."""
    if path := os.environ.get(VARIABLE):  # noqa: TID251 - all that a worker is given before it starts
        logging.getLogger(_LOGGER).addHandler(_Writer(Path(path)))


@contextmanager
def told_faults() -> Iterator[None]:
    """Raise, in place of vLLM's own error, what a worker that is started in the context wrote.

    Raises:
        ValueError: the worker's own, which is how vLLM refuses settings and sizes.
        RuntimeError: anything else ended it.
    """
    with tempfile.TemporaryDirectory(prefix="worker-") as folder:
        path = Path(folder) / "fault"
        os.environ[VARIABLE] = str(path)  # noqa: TID251 - see above
        try:
            yield
        except Exception as error:
            if not path.exists():
                raise
            text = path.read_text(encoding="utf-8", errors="replace")
            kind, _, message = text.partition(": ")
            raise (
                ValueError(message) if kind == ValueError.__name__ else RuntimeError(text)
            ) from error
        finally:
            os.environ.pop(VARIABLE, None)  # noqa: TID251 - see above
