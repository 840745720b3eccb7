"""Headers of every response, and the Host header of every request."""

import pytest

from modnorm.web.app import build_app
from modnorm.web.guard import LOOPBACK
from modnorm.web.run_directories import DirectoryCatalog


@pytest.mark.parametrize(
    "address", ["/", "/runs/first", "/runs/none", "/none", "/static/style.css"]
)
def test_every_response_carries_a_strict_policy(get, address):
    headers = get(address).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080"])
def test_loopback_names_are_answered(get, host):
    assert get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "localhost/x", "[::1", "", "a:b"],
)
def test_foreign_names_are_refused(get, host):
    answer = get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "content-security-policy" in answer.headers


def test_a_named_host_is_answered(send, runs):
    app = build_app(DirectoryCatalog([runs]), LOOPBACK | {"lab"})
    assert send(app, "GET", "/", {"host": "lab:8080"}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(send, runs, method):
    assert send(build_app(DirectoryCatalog([runs])), method, "/").status_code == 405
