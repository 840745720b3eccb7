"""The launcher of Postgres and Redis."""

import signal

import pytest

from verification.labs import servers


@pytest.mark.integration
def test_a_killed_broker_starts_again_with_its_content():
    with servers.broker() as broker:
        with broker.connect() as client:
            client.set("kept", "yes")
        broker.end(signal.SIGTERM)
        assert not broker.alive
        assert not broker.answers()
        broker.start()
        broker.wait()
        with broker.connect() as client:
            assert client.get("kept") == b"yes"
