"""Structured logs: one JSON object a line, on standard error."""

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
"""Loggers that tell, at INFO, of each message by Celery's names; the service's own lines have
those of the experiment."""


def naming(**names: str | int) -> AbstractContextManager[object]:
    """Return a context in which every line that is logged carries some fields.

    It follows the work into `asyncio.to_thread` and into tasks, and into no other thread.
    """
    return structlog.contextvars.bound_contextvars(**names)


def configure_logging(level: str) -> None:
    """Send the logs of this process, libraries included, to standard error as JSON.

    Modules log through the standard library (`logging.getLogger(__name__)`); what they pass as
    `extra` becomes fields.

    Args:
        level: Lowest level that is written: DEBUG, INFO, WARNING or ERROR.
    """
    logging.basicConfig(level=level, handlers=[json_handler(sys.stderr)], force=True)
    logging.captureWarnings(capture=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel("WARNING" if level == "INFO" else level)


def internal_error(error_id: str) -> str:
    """Return what is told of a defect: the id that it is logged under, and the file if known."""
    handlers = logging.getLogger().handlers
    files = [one.get_name() for one in handlers if isinstance(one, _LossyHandler)]
    place = "".join(f": {file}" for file in files if file)
    return f"internal error, see the log with id {error_id}{place}"


def json_handler(stream: TextIO, *, file: str = "") -> logging.Handler:
    """Return a handler that writes JSON objects, one a line, to a stream.

    Lines that a full disk does not take are lost.

    Args:
        stream: Where it writes.
        file: The file of the stream, where callers of this process can read it.
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
    """Says nothing of lines that cannot be written: tracebacks would hide what else is said."""

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
