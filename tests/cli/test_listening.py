"""The address at which `modnorm serve` and `modnorm view` listen."""

import json
import socket

import pytest

from modnorm.cli.serving import listen
from modnorm.errors import InvalidInputError


@pytest.fixture
def port():
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_free_port_is_taken():
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_that_cannot_be_bound_is_refused(port, host):
    with pytest.raises(InvalidInputError, match=f"cannot listen at {host}, port {port}") as caught:
        listen(host, port)
    assert (caught.value.field, "--port 0" in str(caught.value.remedy)) == ("port", True)


def test_view_refuses_a_port_in_use(refusal, port, tmp_path):
    spec = {"name": "shown", "task": {"name": "countdown"}, "method": {"name": "randopt"}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    err = refusal("view", tmp_path, "--port", port)
    assert err.startswith(f"error: port: cannot listen at 127.0.0.1, port {port}: Address already")
