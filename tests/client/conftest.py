"""A real gRPC server on loopback whose service does what a test tells it."""

import socket
from concurrent import futures
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from modnorm.spec import parse_spec
from modnorm.v1.experiment_pb2_grpc import (
    ExperimentServiceServicer,
    add_ExperimentServiceServicer_to_server,
)


@contextmanager
def _running(servicer, address):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_ExperimentServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def servicer():
    """Make a servicer whose methods are functions of request and context; others are missing."""

    def make(**methods):
        members = {name: staticmethod(method) for name, method in methods.items()}
        return type("Service", (ExperimentServiceServicer,), members)()

    return make


@pytest.fixture
def serve():
    """Start a server of a servicer; returns its target."""
    with ExitStack() as stack:

        def start(servicer, address="127.0.0.1:0"):
            return stack.enter_context(_running(servicer, address))

        yield start


@pytest.fixture
def spec():
    return parse_spec(
        {
            "name": "small",
            "model": "tiny-thicket",
            "task": {
                "name": "countdown",
                "selection": "bundled:countdown-selection",
                "heldout": "bundled:countdown-heldout",
            },
            "method": {"name": "randopt", "sigma": 0.005},
            "population": {"size": 4, "ensemble_sizes": [1, 2]},
        }
    )


@pytest.fixture
def free_address():
    """An address on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return f"127.0.0.1:{port}"
