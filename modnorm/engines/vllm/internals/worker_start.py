"""Forks vLLM's workers on GPUs, and passes on the exception of one that fails to start."""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm.platforms import current_platform
from vllm.v1.executor import multiproc_executor

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.engines.vllm.worker_context import WorkerContext

VARIABLE = "MODNORM_WORKER_FAULT"
"""Environment variable with the file's path; worker processes get it."""
_START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


class _Writer(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        kind = ValueError if isinstance(error, ValueError) else type(error)
        # An existing file is another rank's; a missing folder means that the start has ended.
        with suppress(OSError), self._path.open("x", encoding="utf-8") as file:
            file.write(f"{kind.__name__}: {error}")


def write_worker_errors() -> None:
    """Write the exception that ends this worker process to the file; call it once."""
    if path := os.environ.get(VARIABLE):  # noqa: TID251 - a worker's only input before it starts
        logging.getLogger(multiproc_executor.__name__).addHandler(_Writer(Path(path)))


def fork_workers() -> None:
    """Let vLLM fork its workers on GPUs from a server; others are spawned.

    On a CPU vLLM binds each worker to cores by variables that are read when torch is imported.
    """
    os.environ.setdefault(_START_METHOD, "spawn")  # noqa: TID251 - vLLM's own setting
    if not current_platform.is_cpu():
        multiproc_executor.get_mp_context = WorkerContext


@contextmanager
def worker_errors_raised() -> Iterator[None]:
    """Raise the exception of a worker that fails to start inside the context."""
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


def _asks_for_context(_: object) -> bool:
    """The executor asks for the context that starts a worker."""
    code = multiproc_executor.WorkerProc.make_worker_process.__code__
    return "get_mp_context" in code.co_names


def _logs_under_its_name(_: object) -> bool:
    """The executor logs errors under its module's name."""
    logger = logging.getLogger(multiproc_executor.__name__)
    return multiproc_executor.logger is logger and logger.isEnabledFor(logging.ERROR)


WORKER_START = RegisterEntry(
    name="worker_start",
    purpose="Forks workers from a server: forks of a process with threads can hang, and spawned "
    "workers import vLLM again.",
    stage=Stage.PROCESS,
    vllm_names=(
        "vllm.envs:environment_variables",
        "vllm.v1.executor.multiproc_executor:get_mp_context",
        "vllm.v1.executor.multiproc_executor:WorkerProc.make_worker_process",
    ),
    removable_when="vLLM forks workers from a server",
    self_test=_asks_for_context,
)
WORKER_ERRORS = RegisterEntry(
    name="worker_errors",
    purpose="Reads the worker's exception: a model that does not fit is refused, not retried.",
    stage=Stage.PROCESS,
    vllm_names=("vllm.v1.executor.multiproc_executor:logger",),
    removable_when="vLLM's executor raises the worker's exception",
    self_test=_logs_under_its_name,
)
