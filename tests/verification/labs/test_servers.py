"""The launcher of Postgres and Redis."""

import signal

import pytest

from verification.labs import servers


def test_a_missing_program_is_named_with_the_remedy():
    with pytest.raises(SystemExit) as ended:
        servers.find_program("no-such-server", "nor-this")
    assert str(ended.value) == (
        "no-such-server or nor-this is not installed: run scripts/ensure-servers"
    )


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


@pytest.mark.integration
def test_a_server_that_ends_at_its_start_says_why():
    with (
        pytest.raises(RuntimeError, match="no_such_setting"),
        servers.database({"no_such_setting": "on"}),
    ):
        pytest.fail("it started")


@pytest.mark.integration
def test_open_connections_do_not_keep_a_database_from_stopping():
    with servers.database(servers.HASTY) as database:
        connection = database.connect()
    assert not database.alive
    connection.close()
