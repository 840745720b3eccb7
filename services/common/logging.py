"""Structured logs: one JSON object per line on standard error."""

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger
from typing_extensions import override


def _add_module(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the logger's name; `python -m MODULE` logs as MODULE, not as `__main__`."""
    event = structlog.stdlib.add_logger_name(logger, method, event)
    spec = sys.modules["__main__"].__spec__
    if event["logger"] == "__main__" and spec is not None:
        event["logger"] = spec.name
    return event


_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    _add_module,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    # Local variables hold prompts, rows and URLs with passwords.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

_CHATTY = ("celery.app.trace", "celery.worker.strategy", "grpc._cython", "matplotlib")
"""Loggers with a line for each message or call; the service's own lines name the experiment."""
_QUIETER = {"DEBUG": "INFO", "INFO": "WARNING"}
BLANK = "[secret]"
_LONGEST = 20_000
_KEYS = frozenset({"authorization", "password", "secret", "token", "api_key"})
"""Fields whose texts are secrets; numbers under these names, such as fencing tokens, are not."""
_PATTERNS = (
    re.compile(r"(modnorm_[a-z0-9-]{1,40}_)[A-Za-z0-9_-]{43}"),
    re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{16,}"),
    re.compile(r"(\w://[^\s/:@]*:)\S+(?=@)"),
    re.compile(r"""(?i)(password['"]?\s*[=:]\s*['"]?)[^\s'",;}]+"""),
)
"""Tokens, headers, passwords in URLs, and passwords as database libraries write them."""


def blank_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Blank the secrets in an event; the last processor before the writer."""
    return {key: _field(key, value) for key, value in event.items()}


def blanked(text: str) -> str:
    """Return a text with its secrets blanked, and cut: broken messages may be long."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{BLANK}", text)
    return text[:_LONGEST]


def _field(key: object, value: object) -> object:
    if isinstance(value, str) and isinstance(key, str) and key.lower() in _KEYS:
        return BLANK
    return _value(value)


def _value(value: object) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {key: _field(key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(inner) for inner in value]
    return blanked(value if isinstance(value, str) else repr(value))


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
        logging.getLogger(name).setLevel(_QUIETER.get(level, level))


def internal_error(error_id: str) -> str:
    """Return the message for a defect, with its id in the log and the log file if known."""
    handlers = logging.getLogger().handlers
    files = [one.get_name() for one in handlers if isinstance(one, _LossyHandler)]
    place = "".join(f": {file}" for file in files if file)
    return f"internal error, see the log with id {error_id}{place}"


def json_handler(stream: TextIO, *, file: str = "") -> logging.Handler:
    """Return a handler that writes one JSON object per line to a stream.

    Lines that cannot be written, for example to a full disk, are lost.
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


@contextmanager
def logging_to(path: Path, *, named: bool) -> Iterator[None]:
    """Append the log of this process to a file inside the context, instead of the terminal."""
    root = logging.getLogger()
    level = root.level
    stream = path.open("a", encoding="utf-8")
    handler = json_handler(stream, file=str(path) if named else "")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        with suppress(OSError):  # on a full disk; the error is raised as well
            stream.close()
