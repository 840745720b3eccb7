import json
import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.services.common.service_process import traced
from modnorm.services.common.settings import (
    AggregatorSettings,
    EvaluatorSettings,
    TracingSettings,
    add_password,
)
from tests.faults import error_at


def test_without_roots_no_local_file_may_be_read():
    assert AggregatorSettings().data_roots == ()
    assert EvaluatorSettings().model_roots == ()


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
        ("OTEL_SDK_DISABLED", "perhaps", "OTEL_SDK_DISABLED: Input should be "),
        ("MODNORM_CACHE_DIR", "", "MODNORM_CACHE_DIR: is empty: name a path, or leave it unset"),
        ("MODNORM_DATABASE_PASSWORD_FILE", "/nowhere", "database_password_file: /nowhere cannot"),
    ],
)
def test_a_process_names_an_invalid_setting_and_ends(forks, name, value, said):
    environment = os.environ | {name: value, "MODNORM_TOKEN": "a secret"}
    command = forks.command("modnorm.services.aggregator.server")
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["event"].startswith(f"ended: {said}")
    assert "secret" not in line


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text("p@ss/:word\n")
    return path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:6379/0", "redis://:p%40ss%2F%3Aword@h:6379/0"),
        ("amqp://u@h:5672//", "amqp://u:p%40ss%2F%3Aword@h:5672//"),
        ("postgresql://u@h/d?x=y", "postgresql://u:p%40ss%2F%3Aword@h/d?x=y"),
    ],
)
def test_the_password_is_quoted_into_the_url(file, url, expected):
    assert add_password(url, file, field="f") == expected


def test_settings_read_passwords_from_files(file, monkeypatch):
    monkeypatch.setenv("MODNORM_BROKER_PASSWORD_FILE", str(file))
    monkeypatch.setenv("MODNORM_DATABASE_PASSWORD_FILE", str(file))
    monkeypatch.setenv("MODNORM_DATABASE_URL", "postgresql://u@h/d")
    settings = AggregatorSettings()
    assert settings.database_url == "postgresql://u:p%40ss%2F%3Aword@h/d"
    assert settings.broker_url == "redis://:p%40ss%2F%3Aword@127.0.0.1:6379/0"
    assert EvaluatorSettings().broker_url == settings.broker_url


def test_a_password_in_the_url_as_well_is_refused(file):
    with error_at("broker_password_file", "both contain a password"):
        EvaluatorSettings(broker_url="redis://:p@h/0", broker_password_file=file)


def test_an_absent_and_an_empty_file_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="absent cannot be read: No such file"):
        add_password("redis://h/0", tmp_path / "absent", field="f")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidInputError, match="is empty"):
        add_password("redis://h/0", tmp_path / "empty", field="f")


ENDPOINT = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT, True),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ENDPOINT, True),
        ("OTEL_SERVICE_NAME", "x", False),
    ],
)
def test_traces_are_exported_if_an_endpoint_is_set(monkeypatch, name, value, wanted):
    monkeypatch.setenv(name, value)
    assert TracingSettings().wanted == wanted
    monkeypatch.setenv("OTEL_SDK_DISABLED", "")
    assert TracingSettings().wanted == wanted
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not TracingSettings().wanted


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "modnorm.services.common.telemetry", None)
    settings = TracingSettings(otel_exporter_otlp_endpoint=ENDPOINT)
    with pytest.raises(PreconditionError, match=r"modnorm\[telemetry\]"), traced(settings, "x"):
        pass
