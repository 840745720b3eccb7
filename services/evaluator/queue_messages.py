"""Messages of the queue: accepted only in the form in which the aggregator sends them.

Anybody who reaches the broker can put messages there. An accepted message carries one job id, and
the aggregator decides whether to lease that job. All others are rejected before Celery reads them.
No message ends the worker.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial

from celery.worker.consumer import Consumer
from kombu.connection import Connection
from kombu.message import Message
from typing_extensions import override

from modnorm.errors import InvalidInputError
from services.common.queue import TASK

POLL_SECONDS = 0.2
"""Longest wait for a message before Celery looks whether to stop."""
MAX_BODY = 4096
"""Bytes; ten times the size of the aggregator's messages."""
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_UNUSED = ("eta", "expires", "group", "shadow", "ignore_result", "stamped_headers")
"""Headers that would delay a message, rename it or tie it to others."""

logger = logging.getLogger(__name__)


def job_of(message: Message) -> str:
    """Return the job id that a message carries.

    Raises:
        InvalidInputError: the aggregator sends no such message.
    """
    _check_headers(message.headers)
    if (message.content_type, message.content_encoding) != ("application/json", "utf-8"):
        raise _foreign("it is not JSON")
    if len(message.body) > MAX_BODY:
        raise _foreign(f"it has {len(message.body)} bytes")
    try:
        content = json.loads(message.body)
    except (ValueError, RecursionError):
        raise _foreign("it is not JSON") from None
    match content:
        case [[str(job_id)], dict(named), dict(linked)]:
            pass
        case _:
            raise _foreign("it does not carry an id")
    if named or any(value is not None for value in linked.values()):
        raise _foreign("it carries more than an id")
    if not _ID.fullmatch(job_id):
        raise _foreign("its id is none of a job")
    return job_id


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise _foreign("it has no headers")
    if headers.get("task") != TASK:
        raise _foreign("it names another task")
    identity = headers.get("id")
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        raise _foreign("it has no id of its own")
    limits = headers.get("timelimit") or (None, None)
    if any(headers.get(name) is not None for name in _UNUSED) or list(limits) != [None, None]:
        raise _foreign("it asks for more than work")


def _foreign(reason: str) -> InvalidInputError:
    return InvalidInputError(f"not a message of the aggregator: {reason}")


class QueueConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """Celery's consumer for a queue that others may write to."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        lost = self.conninfo.connection_errors
        self._outages: tuple[type[Exception], ...] = (ConnectionError, *lost)
        # A message that cannot be unpacked breaks the connection, which is then opened again.
        self.connection_errors = (Exception,)

    @override
    def connect(self) -> Connection:
        """Return a connection that waits for messages in short steps.

        Celery looks only between two steps whether to stop; its own take two seconds.
        """
        connection: Connection = super().connect()
        drain = partial(_drain_briefly, connection.drain_events)
        connection.drain_events = drain  # type: ignore[method-assign]  # of this instance
        return connection

    @override
    def create_task_handler(self, *arguments: object) -> Callable[[Message], None]:
        """Return the handler of messages: it rejects those that are not of the aggregator."""
        take = super().create_task_handler(*arguments)

        def handle(message: Message) -> None:
            try:
                job_of(message)
                take(message)
                _require_end(message)
            except self._outages:
                raise
            except InvalidInputError as error:
                logger.warning("dropped: %s", error.message)
                self._reject(message)
            except Exception:
                logger.exception("a message was dropped")
                self._reject(message)

        return handle

    def _reject(self, message: Message) -> None:
        message.reject_log_error(logger, self._outages)  # type: ignore[no-untyped-call]  # untyped


def _drain_briefly(drain: Callable[..., None], timeout: float) -> None:
    drain(timeout=min(timeout, POLL_SECONDS))


def _require_end(message: Message) -> None:
    """Make sure that a message whose job has ended is off the queue.

    Celery only logs the loss of a broker in the middle of a job. The channel would still count the
    message as unacknowledged, and never ask for another.

    Raises:
        ConnectionError: the connection has to be opened again.
    """
    if not message.acknowledged:
        raise ConnectionError("the broker was lost in the middle of a job")
