import json
import os
import subprocess

import pytest
from pydantic import ValidationError

from modnorm.services.common.settings import AggregatorSettings, EvaluatorSettings


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
