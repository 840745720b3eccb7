import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from services.common.healthcheck import check
from verification.labs.waiting import HANG_SECONDS, wait_until

SERVICE = "modnorm.v1.ExperimentService"


@contextmanager
def aggregator(folder):
    """Run the aggregator as a process."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = {
        "MODNORM_BIND_ADDRESS": address,
        "MODNORM_DATABASE_URL": f"sqlite:///{folder}/modnorm.db",
        "MODNORM_BROKER_URL": "memory://",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.aggregator.server"],
            env={**os.environ, **settings},
            stderr=log,
        )
    try:
        yield process, address
    finally:
        process.kill()
        process.wait()


def wait_for(process, address):
    def serves():
        assert process.poll() is None
        return check(address, SERVICE, timeout=1) == "SERVING"

    wait_until(serves, "the service serves")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_stops_gracefully_and_logs_json(tmp_path, number):
    with aggregator(tmp_path) as (process, address):
        wait_for(process, address)
        command = [sys.executable, "-m", "services.common.healthcheck", address]
        assert subprocess.run([*command, SERVICE], check=False).returncode == 0
        unknown = subprocess.run([*command, "x"], check=False, capture_output=True, text=True)
        assert (unknown.returncode, unknown.stderr) == (1, f"{address}: NOT_FOUND\n")
        process.send_signal(number)
        assert process.wait(timeout=HANG_SECONDS) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    listening, stopping = (
        line
        for line in lines
        if line["logger"] == "services.common.service_process" and line["event"] != "observed"
    )
    assert [listening["event"], stopping["event"]] == ["listening", "stopping"]
    assert {"level", "logger", "timestamp"} <= stopping.keys()
    assert str(listening["port"]) in address


def test_a_bad_setting_of_opentelemetry_ends_the_process_with_its_name():
    settings = {"OTEL_SDK_DISABLED": "perhaps", "MODNORM_BIND_ADDRESS": "127.0.0.1:0"}
    ended = subprocess.run(
        [sys.executable, "-m", "services.calibrator.server"],
        env={**os.environ, **settings},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["event"].startswith("ended: OTEL_SDK_DISABLED: Input should be ")


def test_a_taken_address_ends_the_process_with_the_reason(tmp_path):
    with aggregator(tmp_path) as (process, address):
        wait_for(process, address)
        settings = {"MODNORM_BIND_ADDRESS": address, "MODNORM_BROKER_URL": "memory://"}
        second = subprocess.run(
            [sys.executable, "-m", "services.aggregator.server"],
            env={**os.environ, **settings},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert second.returncode != 0
        assert "MODNORM_BIND_ADDRESS" in second.stderr
