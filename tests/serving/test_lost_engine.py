"""The end of a server whose engine has failed."""

import asyncio
import signal
import socket

import pytest

from modnorm.cli.serving import answer_requests
from modnorm.errors import EngineError
from modnorm.prediction.predictor import Question
from modnorm.serving.api_errors import ApiKeys, RequestLimit, ServerMetrics
from modnorm.serving.app import Server
from modnorm.serving.switching_answers import SwitchingAnswers


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
