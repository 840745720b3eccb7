import socket
import threading
from contextlib import ExitStack, closing
from functools import partial

import pytest
import redis
from amqp.exceptions import AccessRefused, NotAllowed, PreconditionFailed
from kombu.transport.pyamqp import Transport

from modnorm.errors import UnavailableError
from modnorm.services.common.queue import (
    QUEUE,
    TASK,
    WorkListener,
    announce_work,
    check_broker,
    make_celery,
)
from tests.faults import error_at
from verification.labs.servers import free_port
from verification.labs.waiting import HANG_SECONDS, wait_until


@pytest.mark.parametrize("broker", ["redis", "memory"])
def test_every_worker_is_told_that_there_is_work(broker, request):
    url = request.getfixturevalue("redis_url") if broker == "redis" else "memory://"
    heard = [threading.Event() for _ in range(3)]
    with ExitStack() as stack:
        for number, event in enumerate(heard):
            listener = stack.enter_context(closing(WorkListener(url, event.set, f"w{number}")))
            listener.start()
            wait_until(partial(getattr, listener, "is_connected"), "the connection")
        app = make_celery(url)
        for _ in range(2):  # a subscription may take effect after the connection
            announce_work(app)
            [event.wait(1.0) for event in heard]
    assert all(event.is_set() for event in heard)


def test_a_listener_hears_again_after_a_flush_and_foreign_messages(redis_url):
    heard = threading.Event()
    with closing(WorkListener(redis_url, heard.set, "w")) as listener:
        listener.start()
        wait_until(lambda: listener.is_connected, "the connection")
        app = make_celery(redis_url)
        exchange = app.amqp.queues[QUEUE].exchange
        with closing(redis.Redis.from_url(redis_url)) as client:
            client.flushall()
        app.send_task("of.another", declare=[exchange])
        app.send_task(TASK, args=["too", "many"], declare=[exchange])
        with app.producer_or_acquire() as producer:
            producer.publish("no task", exchange=exchange, declare=[exchange])

        def is_heard():
            announce_work(app)
            return heard.wait(0.2)

        wait_until(is_heard, "a message")


def test_a_listener_ends_while_its_broker_is_down(caplog):
    before = set(threading.enumerate())
    with closing(WorkListener("redis://127.0.0.1:1/0", print, "w")) as listener:
        listener.start()
        (thread,) = set(threading.enumerate()) - before
        wait_until(lambda: "cannot be reached" in caplog.text, "a try")
        assert not listener.is_connected
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("call", [check_broker, announce_work])
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
            announce_work(app)


@pytest.mark.parametrize("call", [check_broker, announce_work])
@pytest.mark.parametrize("refusal", [AccessRefused, NotAllowed, PreconditionFailed])
def test_a_broker_that_refuses_a_login_or_a_queue_is_unavailable(monkeypatch, refusal, call):
    def refuse(_transport):
        raise refusal

    monkeypatch.setattr(Transport, "establish_connection", refuse)
    with pytest.raises(UnavailableError, match="broker"):
        call(make_celery("amqp://user:password@127.0.0.1//"))


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
        "redsi://:hunter2@127.0.0.1/0",
        "127.0.0.1:6379",
        "",
    ],
)
def test_a_broker_that_celery_could_not_use_is_refused_at_the_start(url):
    with error_at("MODNORM_BROKER_URL") as raised:
        make_celery(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3"),
        (
            "unix://:se%40cret@/run/redis.sock",
            "redis+socket://:se%40cret@/run/redis.sock?virtual_host=0",
        ),
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
