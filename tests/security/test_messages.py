"""Forged messages in the broker have no effect but that workers ask for a job."""

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
from modnorm.services.common.queue import QUEUE, TASK
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.worker import Worker
from modnorm.wire.tokens import Role
from verification.fuzz.stored import await_jobs, small_spec
from verification.labs.secured_lab import secured_lab
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


@pytest.mark.integration
def test_a_forged_message_only_makes_a_worker_ask_for_a_job(tmp_path, redis_url):
    trap = tmp_path / "trap"
    (tmp_path / "lab").mkdir()
    with (
        secured_lab(tmp_path / "lab", broker_url=redis_url) as lab,
        closing(redis.Redis.from_url(redis_url)) as broker,
        Client(
            lab.targets["aggregator"], credentials=lab.token("owner", [Role.SUBMIT, Role.READ])
        ) as owner,
        working(lab, redis_url) as thread,
    ):
        topic = f"/0.{QUEUE}/{QUEUE}"
        wait_until(broker.pubsub_numpat, "the subscription")
        for name, text in forged("of-a-job", trap):
            broker.publish(topic, text)
            assert thread.is_alive(), name
        experiment = owner.submit(small_spec())
        wait_until(lambda: owner.get(experiment.id).progress.jobs_done >= 2, "the jobs")
        assert not trap.exists()
        assert sum(file.stat().st_size for file in lab.logs.glob("*.log")) < 1_000_000


@pytest.mark.integration
def test_queue_keys_of_a_wrong_type_do_not_end_the_aggregator(tmp_path, redis_url):
    with (
        secured_lab(tmp_path, broker_url=redis_url) as lab,
        closing(redis.Redis.from_url(redis_url)) as broker,
        Client(
            lab.targets["aggregator"], credentials=lab.token("owner", [Role.SUBMIT, Role.READ])
        ) as owner,
    ):
        broker.set(f"_kombu.binding.{QUEUE}", "a text, where there was a set")
        await_jobs(lab, owner.submit(small_spec()).id)
        broker.flushall()
        assert await_jobs(lab, owner.submit(small_spec(name="another")).id)
        assert list(lab.complaints()) == []
