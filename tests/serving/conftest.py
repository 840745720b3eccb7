"""A server of three experts on loopback, with an engine that plays a script."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest
import uvicorn

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import Completion, Finish
from modnorm.errors import EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.serving.api_keys import ApiKeys
from modnorm.serving.app import Server, build_app
from modnorm.serving.batching import Batching
from modnorm.serving.metrics import ServerMetrics
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.spec import ModelSpec
from verification.labs.waiting import wait_until

SCRIPT = {3: "so\n#### 7", 1: "#### 8", 2: "#### 8"}
"""What the expert of each seed answers, the best-ranked first."""


class ScriptedEngine:
    """Answers each prompt as the script says; `gate` holds it back."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0
        self.failure: Exception | None = None
        self.batches: list[tuple[int, int, int]] = []

    @contextmanager
    def candidate(self, descriptor, scale_map):
        self.held = descriptor.seed
        try:
            yield descriptor
        finally:
            self.held = 0

    def generate(self, prompts, limits):
        assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        self.batches.append((self.held, len(prompts), limits.max_tokens))
        for index, _ in enumerate(prompts):
            yield Completion(index, SCRIPT[self.held], 5, Finish.STOP)

    def close(self):
        assert not self.held


@pytest.fixture
def engine():
    engine = ScriptedEngine()
    yield engine
    engine.gate.set()


@pytest.fixture
def task_name():
    return "gsm8k"


@pytest.fixture
def ensemble(task_name):
    experts = tuple(
        Expert(10 * seed, Descriptor("portable-v1", seed, "randopt", 0.1, "m", ()))
        for seed in SCRIPT
    )
    scorer = {"gsm8k": "gsm8k-v2", "countdown": "countdown-v1"}[task_name]
    definition = EnsembleDefinition(
        ModelSpec(name="tiny-thicket"),
        "0" * 64,
        TaskIdentity(task_name, scorer, None, 64),
        ScaleMap("randopt", "0" * 64, ()),
        50,
        experts,
    )
    return ServedEnsemble(definition, resolve_checkpoint("tiny-thicket"), 512)


@pytest.fixture
def serve(ensemble, engine):
    """Serve with keys and a limit; returns the address."""
    with ending_servers() as ended:

        def start(keys=(), limit=256):
            metrics = ServerMetrics()
            batching = Batching(
                lambda: engine, ensemble.models, ensemble.task, metrics, limit=limit
            )
            batching.start()
            batching.wait_loaded()
            app = build_app(Server(ensemble, batching, metrics, ApiKeys(keys), 1_700_000_000))
            config = uvicorn.Config(app, log_level="critical", lifespan="off")
            server = uvicorn.Server(config)
            listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            wait_until(lambda: server.started, "the server started")
            ended.append((server, thread, batching, listener))
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


@contextmanager
def ending_servers():
    """Yield a list of servers; end them."""
    ended: list[tuple[uvicorn.Server, threading.Thread, Batching, socket.socket]] = []
    yield ended
    for server, thread, batching, listener in ended:
        server.should_exit = True
        thread.join()
        with suppress(EngineError):
            batching.stop()
        listener.close()
