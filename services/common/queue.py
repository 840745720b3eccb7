"""The queue: Celery messages that carry only a job id.

A message is a hint. Lost, repeated or reordered messages change no result. If the broker is down,
jobs wait until the aggregator publishes them again.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from celery import Celery
from celery.utils import uuid
from kombu.connection import Connection
from kombu.exceptions import KombuError

from modnorm.errors import InvalidInputError, UnavailableError

TASK = "modnorm.evaluate"
QUEUE = "evaluation"
_TASKS = {QUEUE: TASK}
VISIBILITY_SECONDS = 12 * 3600
"""Longer than any job. A redelivered message is dropped by the claim but costs a round trip."""
CONNECT_SECONDS = 2.0
SOCKET_SECONDS = 10.0
"""Timeout after which a broker that accepts connections but does not answer counts as down."""
_REDIS = frozenset({"redis", "rediss", "redis+socket"})
_RABBITMQ = frozenset({"amqp", "amqps", "pyamqp"})
"""Schemes of the URLs of brokers."""


def _broker_address(given: str) -> str:
    """Return the URL of a broker in Celery's form; Redis's own is `unix://PATH?db=1`.

    Raises:
        ValueError: Celery could not use the URL, or would not verify the broker's certificate.
    """
    url = re.sub(r"^unix://", "redis+socket://", given)
    scheme, options = url.partition(":")[0], dict(parse_qsl(urlsplit(url).query))
    if scheme not in _REDIS | _RABBITMQ | {"memory"}:
        raise ValueError("the URL names no supported broker: use redis://, unix:// or amqp://")
    if scheme == "redis+socket":
        number = options.get("db", options.get("virtual_host", "0"))
        path = urlsplit(url).path
        url = f"redis+socket://{path}?virtual_host={number}"
        if not path.startswith("/"):
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
    """Return the Celery application of both sides of the queue.

    Raises:
        InvalidInputError: the URL of the broker cannot be used.
    """
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
        task_default_queue=QUEUE,
        task_default_queue_type="quorum" if _is_rabbitmq(broker_url) else "classic",
        task_create_missing_queue_type="quorum" if _is_rabbitmq(broker_url) else "classic",
        # Celery declares 28 queues for delayed messages beside a quorum queue; none is ever used.
        broker_native_delayed_delivery_queue_type="classic",
        # A worker answers nothing while it works: TCP notices connections that are gone.
        broker_heartbeat=0,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        result_backend=None,
        worker_prefetch_multiplier=1,
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=CONNECT_SECONDS,
        broker_transport_options=_transport_options(broker_url),
    )
    if broker_url.startswith("memory:"):
        _declare(app)
    return app


def _declare(app: Celery) -> None:
    """Create the queues of an in-memory broker.

    Otherwise the first use creates it without a lock. Two threads could each create a queue, and
    messages in one of them would be lost.
    """
    with app.connection_for_write() as connection:
        for queue in _TASKS:
            app.amqp.queues[queue](connection.default_channel).queue_declare()


def publish(app: Celery, job_id: str, queue: str = QUEUE) -> None:
    """Put one job id on a queue.

    Raises:
        UnavailableError: the broker cannot be reached now; publish again later.
    """
    publish_all(app, [job_id], queue)


def publish_all(app: Celery, job_ids: Sequence[str], queue: str = QUEUE) -> None:
    """Put job ids on a queue in order, in one batch if the broker supports it.

    Raises:
        UnavailableError: the broker cannot be reached; some ids may be on the queue. Publish all
            again later.
    """
    try:
        _send(app, job_ids, queue)
    except UnavailableError:
        _send(app, job_ids, queue)  # an old connection may be broken


def _send(app: Celery, job_ids: Sequence[str], name: str) -> None:
    """Send tasks like `Celery.send_task`, which would take three times as long for its options."""
    amqp, queue, task = app.amqp, app.amqp.queues[name], _TASKS[name]
    with _outages(app), app.producer_or_acquire() as producer, producer.batch():
        for position, job_id in enumerate(job_ids):
            message = amqp.create_task_message(
                uuid(), task, args=[job_id], argsrepr=job_id, kwargsrepr="", ignore_result=None
            )
            amqp.send_task_message(
                producer,
                task,
                message,
                queue=queue,
                retry=False,
                # Declare only once per batch: a repeated declaration takes a third of the time.
                declare=() if position else None,
            )


def queued(app: Celery, queue: str = QUEUE) -> int:
    """Return the number of messages in a queue.

    Raises:
        UnavailableError: the broker cannot be reached now.
    """
    with _outages(app), app.pool.acquire(block=True, timeout=CONNECT_SECONDS) as connection:
        bound = app.amqp.queues[queue](connection.default_channel)
        return int(bound.queue_declare(passive=False).message_count)


@contextmanager
def _outages(app: Celery) -> Iterator[None]:
    broker = app.connection_for_write()
    try:
        yield
    except (KombuError, OSError, *broker.connection_errors, *broker.channel_errors) as error:
        raise UnavailableError(
            f"the broker cannot be reached: {error}",
            remedy="pending jobs are published again once it is back",
        ) from error


def _transport_options(broker_url: str) -> dict[str, object]:
    if broker_url.startswith("memory:"):
        return {"polling_interval": 0.05}
    if broker_url.partition(":")[0] in _REDIS:
        return {
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": SOCKET_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 25,
        }
    return {"confirm_publish": True} if _is_rabbitmq(broker_url) else {}


def _is_rabbitmq(broker_url: str) -> bool:
    return broker_url.partition(":")[0] in _RABBITMQ
