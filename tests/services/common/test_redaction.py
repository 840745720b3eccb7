import json
import logging

import pytest

from modnorm.services.common.logging import BLANK, blanked
from modnorm.services.common.settings import AggregatorSettings
from modnorm.wire.tokens import Role, make_token

TOKEN, _ = make_token("alice", [Role.READ])
SECRET = TOKEN.rpartition("alice_")[2]
logger = logging.getLogger("test_redaction")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param(f"refused {TOKEN}", SECRET, id="token"),
        pytest.param(f"('authorization', 'Bearer {TOKEN}')", SECRET, id="header"),
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
        ("connect to postgresql://modnorm:hunter2@db/modnorm failed", "hunter2"),
        ("redis://:hun@ter2@queue:6379/0", "ter2"),
        ("host=db user=modnorm password=hunter2 dbname=x", "hunter2"),
        ("{'password': 'hunter2'}", "hunter2"),
    ],
)
def test_secrets_are_blanked_wherever_they_stand(logged, text, secret):
    logger.info("said: %s", text, extra={"field": text, "nested": {"list": [text]}})
    try:
        int(text)
    except ValueError:
        logger.exception("failed")
    written = json.dumps(logged())
    assert secret not in written
    assert written.count(BLANK) >= 4


@pytest.mark.parametrize("name", ["token", "password", "authorization", "Secret"])
def test_fields_with_the_name_of_a_secret_are_blanked(logged, name):
    logger.info("x", extra={"fields": {name: "plain words"}})
    (line,) = logged()
    assert line["fields"] == {name: BLANK}


def test_text_without_secrets_is_unchanged(logged):
    fields = {"token": 7, "url": "http://127.0.0.1:8080/path", "bytes": b"ab", "none": None}
    logger.info("a bearer token is needed", extra=fields)
    (line,) = logged()
    assert line["event"] == "a bearer token is needed"
    assert {name: line[name] for name in fields} == {**fields, "bytes": "b'ab'"}


def test_the_name_of_a_token_stays():
    assert blanked(TOKEN) == f"modnorm_alice_{BLANK}"


def test_settings_do_not_show_secrets(monkeypatch):
    monkeypatch.setenv("MODNORM_TOKEN", TOKEN)
    monkeypatch.setenv("MODNORM_DATABASE_URL", "postgresql://m:hunter2@db/m")
    monkeypatch.setenv("MODNORM_BROKER_URL", "redis://:hunter2@queue/0")
    shown = repr(AggregatorSettings())
    assert SECRET not in shown
    assert "hunter2" not in shown


def test_an_error_in_settings_does_not_show_its_input(monkeypatch):
    monkeypatch.setenv("MODNORM_LEASE_SECONDS", "hunter2")
    with pytest.raises(ValueError, match="lease_seconds") as raised:
        AggregatorSettings()
    assert "hunter2" not in str(raised.value)
