"""A broker that goes away in the middle of a job, and comes back."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import redis

from modnorm.v1 import evaluation_pb2 as messages
from services.common.queue import make_celery, publish
from services.common.settings import EvaluatorSettings
from services.evaluator.celery_worker import Worker

SECONDS = 90.0


@contextmanager
def broker(port: int, folder: Path) -> Iterator[None]:
    """Run a Redis of its own; it is killed at the end."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    assert program, "run scripts/ensure-servers"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen([*command, "--dir", str(folder)], stdout=log, stderr=log)
    try:
        with closing(redis.Redis(port=port)) as client:
            until(lambda: answers(client))
        yield
    finally:
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_broker_lost_in_the_middle_of_a_job_is_taken_up_again(
    target: str, aggregator, add_job: Callable[..., messages.Job], tmp_path: Path
) -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"redis://127.0.0.1:{port}/0"
    worker = Worker(EvaluatorSettings(broker_url=url, aggregator_target=target, stop_grace=0.0))
    thread = threading.Thread(target=worker.run)
    add_job("before")
    add_job("after")
    try:
        with broker(port, tmp_path):
            thread.start()
            publish(make_celery(url), "before")
            until(lambda: aggregator.calls["ClaimJob"] == 1)
        aggregator.wait_for("before")
        until(lambda: not worker.serving)
        with broker(port, tmp_path):
            publish(make_celery(url), "after")
            aggregator.wait_for("after", SECONDS)
            assert worker.serving
            worker.stop()
    finally:
        worker.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()
