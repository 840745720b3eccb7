"""Messages of the queue, accepted only in the aggregator's form.

Anybody who reaches the broker can put messages there. An accepted message carries one job id, and
the aggregator decides whether to lease that job. All other messages are rejected before Celery
reads them. No message ends the worker.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from celery.worker.consumer import Consumer
from kombu.connection import Connection
from kombu.message import Message
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.services.common.worker.backoff import ReconnectBackoff

POLL_SECONDS = 0.2
"""Longest wait for a message before Celery checks whether to stop."""
RECONNECT_SECONDS, MAX_RECONNECT_SECONDS = 0.2, 10.0
"""First and longest pause before reconnecting to the broker."""
MAX_BODY = 4096
"""Bytes; ten times the size of the aggregator's messages."""

Id = Annotated[str, Field(pattern=r"\A[A-Za-z0-9-]{1,64}\z")]

logger = logging.getLogger(__name__)


class _Envelope(BaseModel):
    """A message of the broker: Celery's headers, and a body that is not decoded yet."""

    class Headers(BaseModel):
        """Celery's headers; those that delay, rename or link a message must be empty."""

        task: Literal["modnorm.evaluate", "modnorm.train"]
        id: Id
        eta: None = None
        expires: None = None
        group: None = None
        shadow: None = None
        ignore_result: None = None
        stamped_headers: None = None
        timelimit: Annotated[list[None], Field(max_length=2)] | None = None

    headers: Headers
    content_type: Literal["application/json"]
    content_encoding: Literal["utf-8"]
    body: Annotated[bytes, Field(max_length=MAX_BODY)]


_BODY = TypeAdapter(
    tuple[tuple[Id], Annotated[dict[str, object], Field(max_length=0)], dict[str, None]]
)
"""One positional argument, no keyword arguments, and no callbacks, chains or chords."""


def job_of(message: Message) -> str:
    """Return the job id that a message carries.

    Raises:
        InvalidInputError: the message does not have the aggregator's form.
    """
    try:
        envelope = _Envelope.model_validate(message, from_attributes=True)
        (job_id,), _, _ = _BODY.validate_json(envelope.body)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise InvalidInputError(
            f"not a message of the aggregator: {place}: {fault['msg']}"
        ) from None
    return job_id


class QueueConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """Celery's consumer for a queue that others may write to."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        lost = self.conninfo.connection_errors
        self._outages: tuple[type[Exception], ...] = (ConnectionError, *lost)
        # After a message that cannot be unpacked, Celery reconnects.
        self.connection_errors = (Exception,)
        self._backoff = ReconnectBackoff(RECONNECT_SECONDS, MAX_RECONNECT_SECONDS)

    @override
    def connect(self) -> Connection:
        """Return a connection whose waits for messages are short.

        Celery checks only between two waits whether to stop, and its own take two seconds.
        """
        connection: Connection = super().connect()
        drain = partial(_drain_briefly, connection.drain_events)
        connection.drain_events = drain  # type: ignore[method-assign]  # of this instance
        return connection

    @override
    def ensure_connected(self, connection: Connection) -> Connection:
        """Connect, however long the broker is down; `QueueLoop.end` ends the wait.

        Celery's own wait ends only with its whole process.
        """
        connection.ensure_connection(  # type: ignore[no-untyped-call]  # untyped
            _log_refusal,
            interval_max=MAX_RECONNECT_SECONDS,
            callback=self.perform_pending_operations,
        )
        return connection

    @override
    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Close a broken connection and pause before Celery reconnects.

        If the broker's queue key has a wrong type, each new connection breaks at once.
        """
        super().on_connection_error_after_connected(exc)
        time.sleep(self._backoff.after_failure())

    @override
    def create_task_handler(self, *arguments: object) -> Callable[[Message], None]:
        """Return a message handler that rejects messages without the aggregator's form."""
        celery_handler = super().create_task_handler(*arguments)

        def handle(message: Message) -> None:
            try:
                job_of(message)
                celery_handler(message)
                _require_settled(message)
            except self._outages:
                raise
            except InvalidInputError as error:
                logger.warning("message rejected: %s", error.message)
                self._reject(message)
            except Exception:
                logger.exception("message rejected")
                self._reject(message)

        return handle

    def _reject(self, message: Message) -> None:
        message.reject_log_error(logger, self._outages)  # type: ignore[no-untyped-call]  # untyped


def _log_refusal(error: Exception, seconds: float) -> None:
    logger.warning("no connection to the broker: %s; next attempt in %g s", error, seconds)


def _drain_briefly(drain: Callable[..., None], timeout: float) -> None:
    drain(timeout=min(timeout, POLL_SECONDS))


def _require_settled(message: Message) -> None:
    """Check that a handled message was acknowledged or rejected.

    If the connection breaks during a job, Celery only logs it. The channel would still count the
    message as unacknowledged and fetch no other.

    Raises:
        ConnectionError: the message is unacknowledged; Celery must reconnect.
    """
    if not message.acknowledged:
        raise ConnectionError("the connection to the broker broke during a job")
