"""A server that ends: stopped while it loads, in a process of its own, or without its engine."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modnorm.cli.serving import answer_requests
from modnorm.errors import EngineError
from modnorm.prediction.predictor import Question
from modnorm.serving.api_errors import ApiKeys, RequestLimit, ServerMetrics
from modnorm.serving.app import Server
from modnorm.serving.switching_answers import SwitchingAnswers
from verification.labs.waiting import wait_until

SERVER = """
import multiprocessing, pathlib, signal, sys, time
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm import engines
from modnorm.cli import predict, serving
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.spec import ModelSpec

def load(*_):
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    pathlib.Path(sys.argv[1]).write_text(str(child.pid))
    time.sleep(600)

if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and their children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engines.load_engine = load
    base = resolve_checkpoint("tiny-thicket")
    expert = Expert(0, Descriptor("portable-v1", 1, "randopt", 0.1, "m", ()))
    definition = EnsembleDefinition(
        ModelSpec(name="tiny-thicket"), base.digest, TaskIdentity("gsm8k", "gsm8k-v3", None, 64),
        ScaleMap("randopt", base.digest, ()), 1, (expert,),
    )
    predict.open_ensemble = lambda *_: (definition, base)
    serving.serve("run", port=0, engine="transformers")
"""
"""A server whose engine takes ten minutes to load, in a thread and a process below it."""


def test_a_server_that_loads_ends_at_once_with_its_children(tmp_path):
    script, child = tmp_path / "server.py", tmp_path / "child"
    script.write_text(SERVER)
    with subprocess.Popen(
        [sys.executable, script, child], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        try:
            wait_until(lambda: child.exists() and child.read_text(), "the engine loads")
            begun = time.monotonic()
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert server.returncode == 130
    assert "Traceback" not in errors
    assert time.monotonic() - begun < 10
    wait_until(lambda: not is_running(int(child.read_text())), "the child has ended")


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end before it is read
        return False


@pytest.fixture
def server(ensemble, engine):
    metrics = ServerMetrics()
    answering = SwitchingAnswers(engine.load, ensemble.models, ensemble.task, metrics)
    return Server(ensemble, answering, RequestLimit(8, metrics), metrics, ApiKeys(), 0)


@pytest.fixture(autouse=True)
def handlers():
    """Restore the handlers that a server replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_server_without_an_engine_ends_with_an_error(server, engine):
    """A restart policy then starts another. A server that stayed would refuse every request."""

    async def serve():
        await server.answering.start()
        engine.left, question = 0, Question(None, [1], 8)
        asking = asyncio.create_task(server.answering.answer("expert-1", question))
        await answer_requests(server, listener)
        with pytest.raises(EngineError, match="has ended"):
            await asking

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(EngineError, match="the engine has failed"),
    ):
        asyncio.run(serve())
