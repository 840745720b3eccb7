"""The address at which `modnorm serve` and `modnorm view` listen."""

import json
import socket

import pytest


@pytest.fixture
def port():
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_view_refuses_a_port_in_use(refusal, port, tmp_path):
    spec = {"name": "shown", "task": {"name": "countdown"}, "method": {"name": "randopt"}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    err = refusal("view", tmp_path, "--port", port)
    assert err.startswith(f"error: port: cannot listen at 127.0.0.1, port {port}: Address already")
