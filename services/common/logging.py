"""Structured logs: one JSON object per line on standard error."""

import logging
import sys
from contextlib import AbstractContextManager
from typing import TextIO

import structlog
from typing_extensions import override

from services.common.redaction import blank_secrets

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    # Local variables hold prompts, rows and URLs with passwords.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

_CHATTY = ("celery.app.trace", "celery.worker.strategy")
"""Loggers that log each message at INFO by Celery's names; the service's own lines name the
experiment."""


def naming(**names: str | int) -> AbstractContextManager[object]:
    """Return a context whose log lines carry the given fields.

    The fields follow into `asyncio.to_thread` and tasks, but not into other threads.
    """
    return structlog.contextvars.bound_contextvars(**names)


def configure_logging(level: str) -> None:
    """Log this process, including libraries, to standard error as JSON.

    Modules log through the standard library (`logging.getLogger(__name__)`). Entries of `extra`
    become fields.
    """
    logging.basicConfig(level=level, handlers=[json_handler(sys.stderr)], force=True)
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel("WARNING" if level == "INFO" else level)


def internal_error(error_id: str) -> str:
    """Return the message for a defect, with its id in the log and the log file if known."""
    handlers = logging.getLogger().handlers
    files = [one.get_name() for one in handlers if isinstance(one, _LossyHandler)]
    place = "".join(f": {file}" for file in files if file)
    return f"internal error, see the log with id {error_id}{place}"


def json_handler(stream: TextIO, *, file: str = "") -> logging.Handler:
    """Return a handler that writes one JSON object per line to a stream.

    Lines that cannot be written, for example to a full disk, are lost.

    Args:
        stream: The stream.
        file: Path of the stream's file, if callers of this process can read it.
    """
    handler = _LossyHandler(stream)
    handler.set_name(file)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _TRACEBACKS,
                blank_secrets,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    return handler


class _LossyHandler(logging.StreamHandler[TextIO]):
    """Drops lines that cannot be written without a traceback, which would hide other output."""

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
