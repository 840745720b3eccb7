"""A server of three experts on loopback, with an engine that plays a script."""

import asyncio
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
from modnorm.serving.api_errors import ApiKeys, RequestLimit, ServerMetrics
from modnorm.serving.app import Server
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers
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
        self.is_closed = False
        self.left = 1_000
        """Experts that may still answer."""
        self.answers: SwitchingAnswers | None = None
        """Where the questions of a server wait for this engine."""
        self.batches: list[tuple[int, int, int]] = []

    def load(self):
        return self

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
        self.left -= 1
        if self.left < 0:
            raise EngineError("the process of the engine has ended")
        self.batches.append((self.held, len(prompts), limits.max_tokens))
        for index, _ in enumerate(prompts):
            yield Completion(index, SCRIPT[self.held], 5, Finish.STOP)

    def close(self):
        if self.is_closed:
            raise AttributeError("an engine is closed once")
        assert not self.held
        self.is_closed = True

    @property
    def waiting(self):
        """How many questions wait."""
        return len(self.answers._waiting) if self.answers else 0


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
    scorer = {"gsm8k": "gsm8k-v3", "countdown": "countdown-v2"}[task_name]
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
            answering = SwitchingAnswers(engine.load, ensemble.models, ensemble.task, metrics)
            engine.answers = answering
            parts = Server(
                ensemble,
                answering,
                RequestLimit(limit, metrics),
                metrics,
                ApiKeys(keys),
                1_700_000_000,
            )
            config = uvicorn.Config(parts.app(), log_level="critical", lifespan="off")
            server = uvicorn.Server(config)
            listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
            thread = threading.Thread(target=run, args=(answering, server, listener))
            thread.start()
            wait_until(lambda: server.started, "the server started")
            ended.append((server, thread, listener))
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


def run(answering, server, listener):
    """Load and serve until the server ends."""

    async def main():
        await answering.start()
        await server.serve(sockets=[listener])

    try:
        asyncio.run(main())
    finally:
        with suppress(EngineError):
            answering.stop()


@contextmanager
def ending_servers():
    """Yield a list of servers; end them."""
    ended: list[tuple[uvicorn.Server, threading.Thread, socket.socket]] = []
    yield ended
    for server, thread, listener in ended:
        server.should_exit = True
        thread.join()
        listener.close()
