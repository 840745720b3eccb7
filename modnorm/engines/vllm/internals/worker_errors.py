"""The reason why a worker process does not start.

vLLM's executor only says that a worker failed; the reason is in the worker's log. Here the worker
writes it to a file that the executor's process has named.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm.v1.executor import multiproc_executor

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage

VARIABLE = "MODNORM_WORKER_FAULT"
"""Names the file; worker processes inherit it."""


class _Writer(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        kind = ValueError if isinstance(error, ValueError) else type(error)
        # A file that exists is the first rank's; without its folder, the start is over.
        with suppress(OSError), self._path.open("x", encoding="utf-8") as file:
            file.write(f"{kind.__name__}: {error}")


def write_worker_errors() -> None:
    """In a worker process, write the exception that ends it to the file; call it once."""
    if path := os.environ.get(VARIABLE):  # noqa: TID251 - a worker's only input before it starts
        logging.getLogger(multiproc_executor.__name__).addHandler(_Writer(Path(path)))


@contextmanager
def worker_errors_raised() -> Iterator[None]:
    """Raise the exception of a worker that starts in the context in place of vLLM's own.

    Raises:
        ValueError: the worker's own, by which vLLM refuses settings and sizes.
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
            is_value = kind == ValueError.__name__
            raise (ValueError(message) if is_value else RuntimeError(text)) from error
        finally:
            os.environ.pop(VARIABLE, None)  # noqa: TID251 - see above


def _logs_under_its_name(_: object) -> bool:
    """The executor logs errors under the name of its module."""
    logger = logging.getLogger(multiproc_executor.__name__)
    return multiproc_executor.logger is logger and logger.isEnabledFor(logging.ERROR)


WORKER_ERRORS = RegisterEntry(
    name="worker_errors",
    purpose="A model that does not fit is refused, not retried: the worker's reason is known.",
    stage=Stage.PROCESS,
    vllm_names=("vllm.v1.executor.multiproc_executor:logger",),
    removable_when="vLLM's executor raises the worker's exception",
    self_test=_logs_under_its_name,
)
