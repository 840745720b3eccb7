import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from modnorm.services.common.settings import AggregatorSettings, EvaluatorSettings


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("MODNORM_LEASE_SECONDS", "12.5")
    monkeypatch.setenv("MODNORM_DATABASE_URL", "postgresql://h/d")
    settings = AggregatorSettings()
    assert settings.lease_seconds == 12.5
    assert settings.database_url == "postgresql://h/d"


@pytest.mark.parametrize(
    ("text", "roots"), [("/a:/b", (Path("/a"), Path("/b"))), ("/a", (Path("/a"),)), ("", ())]
)
def test_roots_are_written_as_in_path(monkeypatch, text, roots):
    monkeypatch.setenv("MODNORM_DATA_ROOTS", text)
    assert AggregatorSettings().data_roots == roots


def test_without_roots_no_local_file_may_be_read():
    assert AggregatorSettings().data_roots == ()
    assert EvaluatorSettings().model_roots == ()


def test_embedded_runs_may_read_any_file():
    assert AggregatorSettings(data_roots=None).data_roots is None


@pytest.mark.parametrize("name", ["LEASE_SECONDS", "REAP_SECONDS"])
def test_intervals_are_positive(monkeypatch, name):
    monkeypatch.setenv(f"MODNORM_{name}", "0")
    with pytest.raises(ValidationError):
        AggregatorSettings()


@pytest.mark.parametrize("name", ["bind_address", "metrics_address", "page_address"])
@pytest.mark.parametrize("value", ["9464", ":9464", "h:", "h:http", "h:65536", "h:-1", "h:\u0661"])
def test_an_address_to_listen_on_is_host_and_port(name, value):
    with pytest.raises(ValidationError, match=f"(?s){name}.*is not HOST:PORT"):
        AggregatorSettings(**{name: value})


@pytest.mark.parametrize("value", ["h:0", "h:65536", "http://h:1"])
def test_an_address_to_call_is_one_of_grpc(value):
    with pytest.raises(ValidationError, match=r"(?s)sampler_target.*is no HOST:PORT"):
        AggregatorSettings(sampler_target=value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BIND_ADDRESS", "127.0.0.1:99999", "MODNORM_BIND_ADDRESS: '127.0.0.1:99999' is not"),
        ("LOG_LEVEL", "loud", "MODNORM_LOG_LEVEL: Input should be "),
        ("CACHE_DIR", "", "MODNORM_CACHE_DIR: is empty: name a path, or leave it unset"),
        ("ACCEPTED_TOKENS", "", "MODNORM_ACCEPTED_TOKENS: is empty: "),
        ("DATABASE_PASSWORD_FILE", "/nowhere", "database_password_file: /nowhere cannot be read"),
    ],
)
def test_a_process_names_an_invalid_setting_and_ends(name, value, said):
    environment = os.environ | {f"MODNORM_{name}": value, "MODNORM_TOKEN": "a secret"}
    command = [sys.executable, "-m", "modnorm.services.aggregator.migrate"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["event"].startswith(f"ended: {said}")
    assert "secret" not in line
