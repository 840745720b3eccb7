"""Services that benchmarks start end with them."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from benchmarks.control_plane import service_processes


def test_a_service_that_hangs_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(service_processes, "STOP_SECONDS", 0.1)
    running = service_processes.service("sampler", {"cache_dir": tmp_path})
    _, process = running.__enter__()
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.__exit__(None, None, None)
    assert not Path(f"/proc/{process}").exists()
