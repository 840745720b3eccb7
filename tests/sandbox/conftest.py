"""One sandbox for all tests of the package; each program has its own process."""

import socket

import pytest

from modnorm.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    """A healthy sandbox with every isolation mechanism of this machine."""
    with Sandbox() as running:
        running.check_health()
        yield running


@pytest.fixture(scope="session")
def listener():
    """Port on loopback that listens, for programs that must not reach it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
