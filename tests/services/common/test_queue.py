import socket
import uuid
from contextlib import closing

import pytest
import redis
from amqp.exceptions import AccessRefused, NotAllowed, PreconditionFailed
from kombu.transport.memory import Channel
from kombu.transport.pyamqp import Transport

from modnorm.errors import UnavailableError
from modnorm.services.common.queue import (
    QUEUE,
    TASK,
    make_celery,
    publish,
    publish_all,
    queued,
)
from tests.faults import error_at


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_message_carries_an_id_and_nothing_else(redis_url):
    app = make_celery(redis_url)
    publish(app, "job-1")
    with app.connection_for_read() as connection:
        message = app.amqp.queues[QUEUE](connection.default_channel).get()
    args, kwargs, _ = message.payload
    assert (args, kwargs) == (["job-1"], {})
    assert message.headers["task"] == TASK
    assert message.content_type == "application/json"


@pytest.mark.parametrize("broker", ["redis", "memory"])
def test_waiting_messages_are_counted(broker, request):
    url = request.getfixturevalue("redis_url") if broker == "redis" else "memory://"
    app = make_celery(url)
    before = queued(app)
    for _ in range(3):
        publish(app, str(uuid.uuid4()))
    assert queued(app) == before + 3


def test_a_flushed_broker_holds_nothing(redis_url):
    app = make_celery(redis_url)
    publish(app, "job-1")
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()
    assert queued(app) == 0
    publish(app, "job-1")
    assert queued(app) == 1


@pytest.mark.parametrize("call", [queued, lambda app: publish(app, "job-1")])
def test_a_broker_that_is_down_is_unavailable(call):
    app = make_celery(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(UnavailableError, match="broker"):
        call(app)


def test_a_broker_that_does_not_answer_is_unavailable(monkeypatch):
    monkeypatch.setattr("modnorm.services.common.queue.CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("modnorm.services.common.queue.SOCKET_SECONDS", 0.2)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        app = make_celery(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        with pytest.raises(UnavailableError):
            publish(app, "job-1")


@pytest.mark.parametrize("call", [queued, lambda app: publish(app, "job-1")])
@pytest.mark.parametrize("refusal", [AccessRefused, NotAllowed, PreconditionFailed])
def test_a_broker_that_refuses_a_login_or_a_queue_is_unavailable(monkeypatch, refusal, call):
    def refuse(_transport):
        raise refusal

    monkeypatch.setattr(Transport, "establish_connection", refuse)
    with pytest.raises(UnavailableError, match="broker"):
        call(make_celery("amqp://user:password@127.0.0.1//"))


def test_jobs_of_a_dead_worker_are_redone_and_no_lease_remains():
    conf = make_celery("redis://127.0.0.1/0").conf
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result
    assert conf.result_backend is None
    assert conf.accept_content == ["json"]


@pytest.mark.parametrize(
    ("url", "arguments"),
    [("amqp://h//", {"x-queue-type": "quorum"}), ("redis://h/0", None), ("memory://", None)],
)
def test_rabbitmq_keeps_the_queue_on_a_quorum(url, arguments):
    assert make_celery(url).amqp.queues[QUEUE].queue_arguments == arguments


@pytest.mark.parametrize("broker", ["redis", "memory"])
def test_many_messages_are_taken_in_the_order_of_their_publication(broker, request):
    url = request.getfixturevalue("redis_url") if broker == "redis" else "memory://"
    app, ids = make_celery(url), [f"job-{index}" for index in range(450)]
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[QUEUE](connection.default_channel)
        queue.declare()
        queue.purge()
        publish_all(app, ids)
        messages = [queue.get(no_ack=True) for _ in ids]
        assert queue.get() is None
    assert [message.payload[0][0] for message in messages] == ids
    tags = {message.properties["delivery_tag"] for message in messages}
    assert len(tags) == len({message.headers["id"] for message in messages}) == len(ids)


def test_a_lost_connection_is_replaced_without_delay(redis_url):
    app = make_celery(redis_url)
    publish(app, "job-1")
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.client_kill_filter(_type="normal", skipme=True)
    publish(app, "job-2")
    assert queued(app) == 2


@pytest.mark.parametrize("url", ["redsi://:hunter2@127.0.0.1/0", "127.0.0.1:6379", ""])
def test_a_broker_of_another_kind_is_refused_at_the_start(url):
    with error_at("MODNORM_BROKER_URL") as raised:
        make_celery(url)
    assert "hunter2" not in str(raised.value)


def test_threads_of_one_process_find_a_queue_that_is_there(monkeypatch):
    monkeypatch.setattr(Channel, "queues", {})
    make_celery("memory://")
    assert list(Channel.queues) == [QUEUE]


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:99999/0",
        "redis://h:x/0",
        "redis://h/abc",
        "redis://h/0/1",
        "unix://relative",
        "unix:///run/redis.sock?db=x",
        "rediss://h/0",
        "rediss://h/0?ssl_cert_reqs=perhaps",
        "rediss://h/0?ssl_ca_certs=/nowhere/ca",
        "amqp://h:99999//",
        "kafka://h",
        "",
    ],
)
def test_a_broker_that_celery_could_not_use_is_refused_at_the_start(url):
    with error_at("MODNORM_BROKER_URL"):
        make_celery(url)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3"),
        (
            "redis+socket:///run/redis.sock?virtual_host=2",
            "redis+socket:///run/redis.sock?virtual_host=2",
        ),
        ("redis://:p@[::1]:6379/15", "redis://:p@[::1]:6379/15"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
        ("rediss://h/0?ssl_ca_certs=/etc/passwd", "rediss://h/0?ssl_ca_certs=/etc/passwd"),
    ],
)
def test_a_broker_is_named_as_redis_or_as_celery_names_it(given, used):
    assert make_celery(given).conf.broker_url == used
