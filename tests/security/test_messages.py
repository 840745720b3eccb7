"""Forged messages in the broker have no effect."""

import base64
import json
import os
import pickle
import threading
import uuid
import zlib
from contextlib import closing, contextmanager

import pytest
import redis

from modnorm.client.client import Client
from modnorm.errors import InvalidInputError
from modnorm.services.common.queue import QUEUE, TASK, make_celery, publish
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.worker.queue_messages import job_of
from modnorm.services.evaluator.celery_worker import Worker
from modnorm.wire.channel import open_channel
from modnorm.wire.tokens import Role
from verification.fuzz.stored import await_jobs, contents, small_spec
from verification.labs.secured_lab import secured_lab
from verification.labs.secured_worker import leased, report_of, reported
from verification.labs.waiting import HANG_SECONDS, wait_until

NOTHING = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def envelope(body, *, content_type="application/json", encoding="utf-8", **headers):
    """Return a message as stored in Redis, with changed headers."""
    identity = str(uuid.uuid4())
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": encoding,
        "content-type": content_type,
        "headers": {"lang": "py", "task": TASK, "id": identity, "root_id": identity, **headers},
        "properties": {
            "correlation_id": identity,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": QUEUE},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


def body(*arguments, linked=NOTHING, **named):
    return json.dumps([list(arguments), named, linked]).encode()


def forged(job_id, trap):
    """Yield texts with a job id that are no messages of the aggregator."""
    signature = {"task": TASK, "args": [job_id], "kwargs": {}, "options": {}, "immutable": True}
    pickled = pickle.dumps(([Payload(f"touch {trap}")], {}, {}))
    packed = zlib.compress(body("0" * 10**7))
    whole = envelope(body(job_id))
    messages = {
        "another task": envelope(body(job_id), task="os.system"),
        "a task of Celery's": envelope(body(job_id, signature), task="celery.chord_unlock"),
        "a pickle": envelope(
            pickled, content_type="application/x-python-serialize", encoding="binary"
        ),
        "a pickle by name": envelope(pickled),
        "yaml": envelope(b"!!python/object/apply:os.system [x]", content_type="application/yaml"),
        "a huge id": envelope(body("x" * 8_000_000)),
        "a packed id": envelope(packed, compression="application/x-gzip"),
        "a score": envelope(body(job_id, reward=1.0)),
        "two ids": envelope(body(job_id, job_id)),
        "no id": envelope(body()),
        "a number": envelope(body(7)),
        "a list": envelope(body([job_id])),
        "a path": envelope(body("../../etc/passwd")),
        "a callback": envelope(body(job_id, linked={**NOTHING, "callbacks": [signature]})),
        "a chain": envelope(body(job_id, linked={**NOTHING, "chain": [signature]})),
        "no body": envelope(b""),
        "half a body": envelope(body(job_id)[:9]),
        "deep": envelope(b"[" * 3000),
        "later": envelope(body(job_id), eta="2999-01-01T00:00:00+00:00"),
        "never": envelope(body(job_id), expires="2000-01-01T00:00:00+00:00"),
        "limits": envelope(body(job_id), timelimit=[1, 1]),
        "a list for a task": envelope(body(job_id), task=[]),
        "a list for an id": envelope(body(job_id), id=[]),
        "no headers": {**whole, "headers": None},
        "a text for headers": {**whole, "headers": "x"},
        "no properties": {**whole, "properties": {}},
        "no encoding": {**whole, "content-encoding": "rot26"},
        "no base64": {**whole, "body": "=" * 7},
        "nothing": {},
        "a number for all": 7,
    }
    yield from ((name, json.dumps(message)) for name, message in messages.items())
    yield "no JSON", "garbage"
    yield "no UTF-8", b"\xff\xfe"


@contextmanager
def working(lab, broker_url):
    """Run an evaluator of a lab."""
    settings = EvaluatorSettings(
        broker_url=broker_url,
        aggregator_target=lab.targets["aggregator"],
        token=lab.token("evaluator", [Role.WORKER]).token,
        heartbeat_seconds=1.0,
        stop_grace=0.0,
        model_roots=(lab.folder / "models",),
        data_roots=(lab.folder / "data",),
    )
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(HANG_SECONDS)


def until(condition):
    wait_until(condition, "what the worker does")


@pytest.mark.integration
def test_a_forged_message_does_nothing(tmp_path, redis_url, caplog):
    trap = tmp_path / "trap"
    (tmp_path / "lab").mkdir()
    with (
        secured_lab(tmp_path / "lab", broker_url=redis_url) as lab,
        closing(redis.Redis.from_url(redis_url)) as broker,
        Client(
            lab.targets["aggregator"], credentials=lab.token("owner", [Role.SUBMIT, Role.READ])
        ) as owner,
        open_channel(lab.targets["aggregator"], lab.token("other", [Role.WORKER]), ()) as other,
    ):
        experiment = owner.submit(small_spec())
        done, theirs, pending, *_ = await_jobs(lab, experiment.id)
        until(lambda: broker.llen(QUEUE) == 4)
        broker.flushall()
        reported(other, report_of(other, leased(other, done)))
        leased(other, theirs)
        before = contents(lab)
        with working(lab, redis_url) as thread:
            for name, text in forged(pending, trap):
                broker.lpush(QUEUE, text)
                until(lambda: not broker.llen(QUEUE) and not broker.hlen("unacked"))
                assert thread.is_alive(), name
            for job_id in (done, theirs, str(uuid.uuid4())):
                broker.lpush(QUEUE, json.dumps(envelope(body(job_id))))
            until(lambda: not broker.llen(QUEUE) and not broker.hlen("unacked"))
            assert contents(lab) == before
            assert not trap.exists()
            publish(make_celery(redis_url), pending)
            until(lambda: owner.get(experiment.id).progress.jobs_done == 2)
        written = [repr(record.__dict__) for record in caplog.records]
        assert any("rejected" in line for line in written)
        assert max(map(len, written)) < 100_000
        assert all("x" * 5000 not in line for line in written)


@pytest.mark.integration
def test_queue_keys_of_a_wrong_type_do_not_end_the_aggregator(tmp_path, redis_url):
    with (
        secured_lab(tmp_path, broker_url=redis_url) as lab,
        closing(redis.Redis.from_url(redis_url)) as broker,
        Client(
            lab.targets["aggregator"], credentials=lab.token("owner", [Role.SUBMIT, Role.READ])
        ) as owner,
    ):
        broker.set(QUEUE, "a text, where there was a list")
        await_jobs(lab, owner.submit(small_spec()).id)
        broker.flushall()
        jobs = await_jobs(lab, owner.submit(small_spec(name="another")).id)
        until(lambda: broker.llen(QUEUE) >= len(jobs))
        assert list(lab.complaints()) == []


def test_messages_of_the_aggregator_are_accepted(redis_url):
    app = make_celery(redis_url)
    publish(app, "6f0f6c8e-6f0b-5d2a-9d0c-1f3f4a3c1b52")
    with app.connection_for_read() as connection:
        message = app.amqp.queues[QUEUE](connection.default_channel).get()
    assert job_of(message) == "6f0f6c8e-6f0b-5d2a-9d0c-1f3f4a3c1b52"
    message.headers["task"] = "another"
    with pytest.raises(InvalidInputError):
        job_of(message)
