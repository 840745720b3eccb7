"""`modnorm view`: a real server, and what it refuses."""

import socket

import httpx
import pytest


@pytest.fixture
def unfinished(claim, tmp_path):
    return claim(tmp_path / "run")


def test_the_page_is_served_at_the_printed_address_until_it_is_interrupted(
    start_modnorm, unfinished
):
    server = start_modnorm("view", unfinished)
    server.wait_for("\n")
    address = server.stdout.strip()
    assert address.startswith("http://127.0.0.1:")
    answer = httpx.get(f"{address}runs/run")
    assert "has not finished" in answer.text
    assert httpx.get(address, headers={"host": "evil.example"}).status_code == 421
    assert server.interrupt() == 130


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_that_stands_for_all_is_refused(refusal, unfinished, host):
    err = refusal("view", unfinished, "--host", host)
    assert "name the address or host name that browsers will use" in err


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a b"])
def test_a_host_that_is_not_this_machine_is_refused(refusal, unfinished, host):
    err = refusal("view", unfinished, "--host", host, "--port", 0)
    assert err.startswith(f"error: host: cannot listen at {host}, port 0: ")
    assert "Unknown error" not in err


def test_a_port_in_use_is_refused(refusal, unfinished):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = refusal("view", unfinished, "--port", port)
    assert err.startswith(f"error: port: cannot listen at 127.0.0.1, port {port}: Address already")
