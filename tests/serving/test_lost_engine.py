"""The end of a server whose engine cannot be loaded again."""

import asyncio
import signal
import socket

import pytest

from modnorm.cli.serve_work import _listen
from modnorm.errors import EngineError
from modnorm.serving.adapter_answers import AdapterAnswers
from modnorm.serving.api_keys import ApiKeys
from modnorm.serving.app import Server
from modnorm.serving.metrics import ServerMetrics
from modnorm.serving.request_limit import RequestLimit


@pytest.fixture
def server(ensemble, adapters):
    answering = AdapterAnswers(
        adapters.load,
        ensemble.models,
        ensemble.definition,
        ensemble.task,
        lambda expert, folder: folder.write_text(str(expert.index)),
    )
    metrics = ServerMetrics()
    return Server(ensemble, answering, RequestLimit(8, metrics), metrics, ApiKeys(), 0)


@pytest.fixture(autouse=True)
def handlers():
    """Restore the handlers that a server replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_server_without_an_engine_ends_with_an_error(server, adapters):
    """A restart policy then starts another. A server that stayed would refuse every request."""

    async def serve():
        await server.answering.start()
        adapters.is_alive, adapters.load_failure = False, EngineError("the GPU is gone")
        await _listen(server, listener)

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(EngineError, match="could not be loaded again"),
    ):
        asyncio.run(serve())
    assert adapters.loads == 1
