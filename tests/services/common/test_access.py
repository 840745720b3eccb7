import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from modnorm.errors import ConflictError, NotFoundError, UnauthenticatedError
from modnorm.files import MAX_YAML_BYTES
from modnorm.services.common.access import TokenFile
from modnorm.wire.connection import is_loopback
from modnorm.wire.tokens import (
    Role,
    TokenTable,
    add_token,
    make_token,
    read_tokens,
    revoke_token,
    write_tokens,
)
from tests.faults import error_at
from verification.labs.waiting import HANG_SECONDS

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.yaml"


def test_only_the_hash_of_a_token_is_stored(path):
    text, kept = make_token("alice", [Role.READ], tenant="team-a")
    add_token(path, kept)
    assert text.split("_", 2)[2] not in path.read_text()
    assert read_tokens(path).check(text, NOW) == kept


@pytest.mark.parametrize(
    "forge",
    [
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.replace("alice", "bob"),
        lambda text: text + "A",
        lambda text: text.upper(),
        lambda text: "",
        lambda text: "modnorm_alice_",
        lambda text: text.split("_", 2)[2],
        lambda text: text + "\n",
        lambda text: "\ud800",
    ],
)
def test_a_forged_token_is_refused(forge):
    text, kept = make_token("alice", [Role.READ])
    with pytest.raises(UnauthenticatedError):
        TokenTable(tokens=(kept,)).check(forge(text), NOW)


def test_a_token_expires():
    text, kept = make_token("alice", [Role.READ], expires=NOW)
    table = TokenTable(tokens=(kept,))
    assert table.check(text, NOW - timedelta(seconds=1)) == kept
    with pytest.raises(UnauthenticatedError, match="expired"):
        table.check(text, NOW)


def test_a_revoked_token_is_refused_and_keeps_its_name(path):
    text, kept = make_token("alice", [Role.READ])
    add_token(path, kept)
    revoke_token(path, "alice")
    with pytest.raises(UnauthenticatedError, match="revoked"):
        read_tokens(path).check(text, NOW)
    with pytest.raises(ConflictError):
        add_token(path, make_token("alice", [Role.READ])[1])
    with pytest.raises(NotFoundError):
        revoke_token(path, "bob")


@pytest.mark.parametrize(
    "text",
    [
        "tokens: [",
        "tokens: {}",
        "[1, 2]",
        "tokens: [{name: a}]",
        "unknown: 1",
        "tokens: [{name: a, sha256: x, roles: [read], created: 2030-01-01T00:00:00Z}]",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_a_wrong_file_is_refused(path, text):
    path.write_text(text)
    with error_at("accepted_tokens"):
        read_tokens(path)


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(path):
    with error_at("accepted_tokens", "No such file"):
        read_tokens(path)
    with error_at("accepted_tokens", "it is a directory"):
        read_tokens(path.parent)
    path.write_text("#" * MAX_YAML_BYTES + "#")
    with error_at("accepted_tokens", "has more than 262,144 bytes"):
        read_tokens(path)


@pytest.mark.parametrize("name", ["", "Alice", "a_b", "-a", "a" * 41, "a/b"])
def test_names_are_plain(name):
    with error_at("name"):
        make_token(name, [Role.READ])


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("[")])
def test_a_damaged_file_keeps_the_accepted_tokens(path, damage, caplog, monkeypatch):
    text, kept = make_token("first", [Role.READ])
    write_tokens(path, TokenTable(tokens=(kept,)))
    tokens = TokenFile(path)
    damage(path)
    monkeypatch.setattr("modnorm.services.common.access.CHECK_SECONDS", 0.0)
    assert tokens.check(text) == kept
    assert "stay valid" in caplog.text


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("lab.example:1", False),
        (":1", False),
        ("1", False),
    ],
)
def test_only_loopback_is_loopback(address, local):
    assert is_loopback(address) is local


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "MODNORM_ACCEPTED_TOKENS"),
        ({"MODNORM_ACCEPTED_TOKENS": "/nowhere"}, "/nowhere"),
        ({"MODNORM_ALLOW_ANONYMOUS": "1", "MODNORM_TLS_CERT": "/nowhere"}, "MODNORM_TLS_KEY"),
        (
            {"MODNORM_ALLOW_ANONYMOUS": "1", "MODNORM_TLS_CLIENT_CERTIFICATES": "1"},
            "MODNORM_TLS_CERT",
        ),
    ],
)
def test_an_unprotected_service_does_not_start(forks, settings, field):
    ended = subprocess.run(
        forks.command("modnorm.services.sandbox.server"),
        env={**os.environ, "MODNORM_BIND_ADDRESS": "0.0.0.0:0", **settings},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ended.returncode == 1
    assert field in ended.stderr
    assert "Traceback" not in ended.stderr
