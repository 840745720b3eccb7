"""The queue: Celery messages that tell every worker that there is work.

A message is a hint without content: a worker that hears it asks the aggregator for a job. Idle
workers also ask at each heartbeat interval, so a lost message costs at most this time.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.worker.consumer.consumer import Consumer
from kombu.common import Broadcast
from kombu.connection import Connection
from kombu.exceptions import KombuError

from modnorm.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from celery.worker import WorkController

logger = logging.getLogger(__name__)

TASK = "modnorm.work"
QUEUE = "modnorm.work"
CONNECT_SECONDS = 2.0
RESTART_SECONDS = 5.0
SOCKET_SECONDS = 10.0
"""Timeout after which a broker that accepts connections but does not answer counts as down."""
_REDIS = frozenset({"redis", "rediss", "redis+socket"})
_RABBITMQ = frozenset({"amqp", "amqps", "pyamqp"})
"""Schemes of the URLs of brokers."""


def _broker_address(given: str) -> str:
    """Return the URL of a broker in Celery's form; Redis's own is `unix://PATH?db=1`."""
    url = re.sub(r"^unix://", "redis+socket://", given)
    scheme, options = url.partition(":")[0], dict(parse_qsl(urlsplit(url).query))
    if scheme not in _REDIS | _RABBITMQ | {"memory"}:
        raise ValueError("the URL names no supported broker: use redis://, unix:// or amqp://")
    if scheme == "redis+socket":
        number = options.get("db", options.get("virtual_host", "0"))
        parts = urlsplit(url)
        userinfo = "".join(parts.netloc.rpartition("@")[:2])
        url = f"redis+socket://{userinfo}{parts.path}?virtual_host={number}"
        if not parts.path.startswith("/"):
            raise ValueError("the socket of Redis is not unix:///PATH")
    try:
        broker = Connection(url)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("the port or an option of the URL is not valid") from error
    if scheme in {"redis", "rediss"}:
        number = str(broker.virtual_host or "/").strip("/") or "0"
    if scheme in _REDIS and not re.fullmatch("[0-9]{1,9}", number):
        raise ValueError("the database of Redis is not a number, as in redis://HOST:PORT/0")
    if scheme == "rediss" and not options.keys() & {"ssl_ca_certs", "ssl_cert_reqs"}:
        raise ValueError(
            "the certificate of Redis would not be verified: add ?ssl_ca_certs=FILE, or ask for "
            "it by ?ssl_cert_reqs=none"
        )
    if not Path(options.get("ssl_ca_certs", "/")).exists():
        raise ValueError("the file of ssl_ca_certs does not exist")
    return url


def make_celery(given_url: str) -> Celery:
    """Return the Celery application of both sides of the queue."""
    try:
        broker_url = _broker_address(given_url)
    except ValueError as error:
        raise InvalidInputError(
            str(error),
            field="MODNORM_BROKER_URL",
            remedy="use redis://HOST:PORT/0 or amqp://USER@HOST:PORT//",
        ) from None  # the cause may contain the password
    app = Celery("modnorm", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_queues=[Broadcast(QUEUE)],  # type: ignore[no-untyped-call]
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        result_backend=None,
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=True,  # Celery warns if it is unset
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_SECONDS,
        broker_transport_options=_transport_options(broker_url),
    )
    if broker_url.startswith("memory:"):  # its first use creates the exchange without a lock
        with app.connection_for_write() as connection:
            app.amqp.queues[QUEUE].exchange(connection.default_channel).declare()
    return app


def announce_work(app: Celery) -> None:
    """Tell every connected worker that jobs are pending."""
    exchange = app.amqp.queues[QUEUE].exchange
    with _outages(app):
        # A channel that has not declared the exchange does not know that it is a fanout.
        app.send_task(TASK, declare=[exchange], retry=True, retry_policy={"max_retries": 1})


def check_broker(app: Celery) -> None:
    with _outages(app), app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)


class WorkListener:
    """A Celery worker in a thread; it calls a function for each message."""

    def __init__(self, broker_url: str, on_work: Callable[[], None], name: str) -> None:
        self._app = make_celery(broker_url)

        def announced() -> None:  # Celery writes a function of this name, which no lambda has
            on_work()

        # Not shared: this process may hold other Celery applications with their own workers.
        self._app.task(announced, name=TASK, shared=False)
        self._name = f"{name}-{id(self):x}"
        self._controller: WorkController | None = None
        self._closed = threading.Event()

    @property
    def is_connected(self) -> bool:
        """Whether the thread is connected to the broker."""
        consumer = getattr(self._controller, "consumer", None)
        connection = consumer and consumer.connection
        return bool(connection and connection.connected)

    def start(self) -> None:
        """Start the thread, which waits for a broker that is down."""
        threading.Thread(target=self._run, name="work-listener", daemon=True).start()

    def close(self) -> None:
        """Make the thread end within seconds; return at once."""
        self._closed.set()
        if self._controller is not None:
            self._controller.consumer.call_soon(self._end_if_closed)

    def _end_if_closed(self) -> None:
        if self._closed.is_set():
            raise WorkerShutdown(0)

    def _run(self) -> None:
        self._app.set_current()  # Celery finds tasks through the thread's current application
        while not self._closed.is_set():
            self._controller = self._app.WorkController(
                hostname=self._name,
                consumer_cls=partial(_Consumer, end_if_closed=self._end_if_closed),
                pool="solo",
                concurrency=1,
                use_eventloop=False,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
            )
            with suppress(WorkerShutdown):
                self._controller.start()  # returns also after a message that breaks Celery
            self._closed.wait(RESTART_SECONDS)


class _Consumer(Consumer):  # type: ignore[misc]  # untyped
    """Celery's own waits for a broker that is down until the whole process ends."""

    def __init__(
        self, *args: object, end_if_closed: Callable[[], None], **options: object
    ) -> None:
        super().__init__(*args, **options)
        self._end_if_closed = end_if_closed

    def ensure_connected(self, conn: Connection) -> Connection:
        """Connect, with retries until the listener is closed."""
        conn.ensure_connection(errback=_log_retry, callback=self._end_if_closed)  # type: ignore[no-untyped-call]
        self._end_if_closed()
        return conn


def _log_retry(error: Exception, seconds: float) -> None:
    logger.error("the broker cannot be reached, next try in %d s: %s", seconds, error)


@contextmanager
def _outages(app: Celery) -> Iterator[None]:
    broker = app.connection_for_write()
    try:
        yield
    except (KombuError, OSError, *broker.connection_errors, *broker.channel_errors) as error:
        raise UnavailableError(
            f"the broker cannot be reached: {error}",
            remedy="idle workers ask for jobs without it; start it, or fix MODNORM_BROKER_URL",
        ) from error


def _transport_options(broker_url: str) -> dict[str, object]:
    if broker_url.startswith("memory:"):
        return {"polling_interval": 0.05}
    if broker_url.partition(":")[0] in _REDIS:
        return {
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": SOCKET_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 25,
        }
    return {}
