"""Processes of the services that read models."""

import json
import signal

import pytest

from modnorm.services.calibrator.servicer import SERVICE as CALIBRATION
from modnorm.services.common.healthcheck import check
from modnorm.services.sampler.servicer import SERVICE as SAMPLING


@pytest.mark.parametrize(("name", "service"), [("calibrator", CALIBRATION), ("sampler", SAMPLING)])
def test_the_process_serves_until_it_is_told_to_stop(start_module, tmp_path, name, service):
    environment = {
        "PATH": "",
        "HOME": str(tmp_path),
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_CACHE_DIR": str(tmp_path / "cache"),
    }
    process = start_module(f"modnorm.services.{name}.server", environment=environment)
    process.wait_for('"listening"')
    logged = (json.loads(line) for line in process.stderr.splitlines() if line.startswith("{"))
    port = next(entry["port"] for entry in logged if entry["event"] == "listening")
    assert check(f"127.0.0.1:{port}", service) == "SERVING"
    process.process.send_signal(signal.SIGTERM)
    assert process.finish().returncode == 0
