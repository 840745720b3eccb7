import json
import signal
import subprocess
import sys

from services.calibrator.servicer import SERVICE
from services.common.healthcheck import check


def test_the_process_serves_until_it_is_told_to_stop(tmp_path):
    environment = {
        "PATH": "",
        "HOME": str(tmp_path),
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_CACHE_DIR": str(tmp_path / "cache"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.calibrator.server"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        logged = (json.loads(line) for line in process.stderr if line.startswith("{"))
        port = next(entry["port"] for entry in logged if entry["event"] == "listening")
        assert check(f"127.0.0.1:{port}", SERVICE) == "SERVING"
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 0
