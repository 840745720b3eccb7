"""Messages of the queue, taken only in the shape in which the aggregator sends them.

Whoever reaches the broker can put anything there. What is let through carries one id, whose job
the aggregator then leases or does not; everything else is dropped before Celery looks at it, and
nothing that a message does to the transport ends the worker.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from celery.worker.consumer import Consumer
from typing_extensions import override

from modnorm.errors import InvalidInputError
from services.common.queue import TASK

IDLE_SECONDS = 0.1
"""Seconds without a message after which other work goes on: the next one is there at once where
there is one."""
LOOK_SECONDS = 0.2
"""Seconds without a message after which Celery looks whether to stop: its own two would be waited
for at the end of every embedded run."""
MAX_BODY = 4096
"""Bytes; a message of the aggregator has a tenth of it."""
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_UNUSED = ("eta", "expires", "group", "shadow", "ignore_result", "stamped_headers")
"""Headers by which a message could be kept, renamed or tied to others."""

logger = logging.getLogger(__name__)


class Message(Protocol):
    """What is looked at in a message."""

    headers: object
    content_type: str
    content_encoding: str
    body: bytes | str

    @property
    def acknowledged(self) -> bool:
        """Whether it is off the queue, or was put back."""

    def reject_log_error(self, log: logging.Logger, errors: tuple[type[Exception], ...]) -> None:
        """Take it off the queue."""


def job_of(message: Message) -> str:
    """Return the id of the job that a message is about.

    Raises:
        InvalidInputError: it is not one that the aggregator sends.
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


def _require_end(message: Message) -> None:
    """Make sure that a message whose job has ended is off the queue.

    Celery only logs that a broker was lost in the middle of a job; the channel would then count
    the message as in hand, and ask for no other, for ever.

    Raises:
        ConnectionError: the connection has to be opened again.
    """
    if not message.acknowledged:
        raise ConnectionError("the broker was lost in the middle of a job")


class SpareTime(Protocol):
    """Work for when no message comes."""

    @property
    def waits(self) -> bool:
        """Whether there is any."""

    def go_on(self) -> None:
        """Do a piece of it."""


class EndedSpareTime(SpareTime, Protocol):
    """Such work, which can also be brought to its end."""

    def end_all(self) -> None:
        """Do all of it, unless the worker is to stop."""


class BrokerConnection(Protocol):
    """What is used of kombu's connection."""

    def drain_events(self, *, timeout: float) -> None:
        """Take in what the broker says; raise `TimeoutError` when it says nothing."""


class PatientConnection:
    """A connection to the broker; while it has nothing to say, other work is done.

    Args:
        connection: The connection.
        spare_time: The other work.
    """

    def __init__(self, connection: BrokerConnection, spare_time: SpareTime | None) -> None:
        self._connection = connection
        self._spare_time = spare_time

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def drain_events(self, timeout: float) -> None:
        """Take in what the broker says within so many seconds, or `LOOK_SECONDS`."""
        work = self._spare_time
        if work is None or not work.waits:
            self._connection.drain_events(timeout=min(timeout, LOOK_SECONDS))
            return
        try:
            self._connection.drain_events(timeout=IDLE_SECONDS)
        except TimeoutError:
            work.go_on()


class HintConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """Celery's consumer, for a queue that others may write to."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        lost = self.conninfo.connection_errors
        self._outages: tuple[type[Exception], ...] = (ConnectionError, *lost)
        # What cannot even be unpacked costs the connection, which is opened again.
        self.connection_errors = (Exception,)

    spare_time: EndedSpareTime | None = None

    @override
    def loop_args(self) -> tuple[object, ...]:
        """Return what the loop is given: a connection that does not let spare time pass."""
        consumer, connection, *others = super().loop_args()
        return consumer, PatientConnection(connection, self.spare_time), *others

    @override
    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Close a connection that broke; end what rests, as no message comes for a while."""
        super().on_connection_error_after_connected(exc)
        if self.spare_time is not None:
            self.spare_time.end_all()

    @override
    def create_task_handler(self, *arguments: object) -> Callable[[Message], None]:
        """Return what is done with each message."""
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
                message.reject_log_error(logger, self._outages)
            except Exception:
                logger.exception("a message was dropped")
                message.reject_log_error(logger, self._outages)

        return handle
