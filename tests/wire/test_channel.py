import asyncio
import os
import select
import socket

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr, ValidationError

from modnorm.client.client import Client
from modnorm.host import exempt_loopback
from modnorm.wire.channel import open_async_channel, open_channel
from modnorm.wire.connection import ConnectionSettings, Credentials
from tests.faults import error_at
from verification.labs.waiting import HANG_SECONDS


@pytest.mark.parametrize("text", ["one\nanother", "modn\u00f6rm", "a\0b", "\ufffd"])
@pytest.mark.parametrize("kept", ["variable", "file"])
def test_what_is_no_token_is_refused_with_its_setting(free_address, tmp_path, text, kept):
    file = tmp_path / "token"
    file.write_text(text)
    shown = Credentials(token_file=file) if kept == "file" else Credentials(token=SecretStr(text))
    with Client(free_address, credentials=shown) as client:
        for call in (lambda: client.get("e1"), lambda: next(client.watch("e1"))):
            with error_at("MODNORM_TOKEN" + "_FILE" * (kept == "file")) as raised:
                call()
            assert text not in str(raised.value)


@pytest.mark.parametrize("given", ["tls_cert", "tls_key"])
def test_no_token_goes_in_clear_beside_a_certificate(free_address, tmp_path, given):
    shown = Credentials(token=SecretStr("secret"), **{given: tmp_path / "file.pem"})
    with error_at("MODNORM_TLS_CA", "nothing would be encrypted"):
        Client(free_address, credentials=shown)


@pytest.fixture
def listeners():
    """Listen as a lab and as a proxy, which the environment names; yield both."""
    with socket.create_server(("127.0.0.1", 0)) as lab, socket.create_server(("", 0)) as proxy:
        yield lab, proxy


@pytest.mark.parametrize("opened", ["blocking", "async"])
@pytest.mark.parametrize(
    ("host", "own_proxy", "meets_proxy"),
    [
        ("127.0.0.1", False, False),
        ("localhost", True, False),
        ("127.0.0.1", True, False),
        ("dns:///127.0.0.1", True, False),
        ("0.0.0.0", False, False),  # to gRPC another machine, and yet this one
        ("0.0.0.0", True, True),
    ],
)
async def test_calls_take_a_proxy_to_other_machines_only_if_modnorm_names_one(
    listeners, monkeypatch, opened, host, own_proxy, meets_proxy
):
    lab, proxy = listeners
    url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("MODNORM_PROXY", url if own_proxy else "")
    target, credentials = f"{host}:{lab.getsockname()[1]}", ConnectionSettings()
    open_one = open_channel if opened == "blocking" else open_async_channel
    channel = open_one(target, credentials, ())
    stub = health_pb2_grpc.HealthStub(channel)
    call = stub.Check.future if opened == "blocking" else stub.Check
    waiting = call(health_pb2.HealthCheckRequest())
    try:
        met, _, _ = await asyncio.to_thread(select.select, listeners, [], [], HANG_SECONDS)
    finally:
        waiting.cancel()
    assert met == [proxy if meets_proxy else lab]


@pytest.mark.parametrize("proxy", ["proxy:3128", "socks5://proxy:1080", "http://", "https://a:1"])
def test_a_proxy_that_grpc_would_ignore_is_refused(monkeypatch, proxy):
    monkeypatch.setenv("MODNORM_PROXY", proxy)
    with pytest.raises(ValidationError, match="http://HOST:PORT"):
        ConnectionSettings()


@pytest.mark.parametrize(
    ("given", "exempt"),
    [
        ({}, None),
        ({"no_proxy": "a"}, "a"),
        ({"http_proxy": "http://p:1"}, "localhost,127.0.0.1,::1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a,::1"}, "a,::1,localhost,127.0.0.1"),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "*"}, "*"),
    ],
)
def test_libraries_reach_this_machine_without_the_proxies_of_the_environment(
    monkeypatch, given, exempt
):
    environment = dict(given)
    monkeypatch.setattr(os, "environ", environment)
    exempt_loopback()
    assert environment.get("no_proxy", environment.get("NO_PROXY")) == exempt
