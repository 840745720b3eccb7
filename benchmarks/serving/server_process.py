"""A server under measurement, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_START_SECONDS = 300
_STOP_SECONDS = 60
_FREEING_SECONDS = 2
"""Time in which a driver frees the memory of an ended process."""


class ServerProcess:
    """Runs the server with the options of this process.

    Args:
        folder: Gets the server's log and its address.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = folder / "server.json"
        self.url = ""
        self.started_seconds = 0.0

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        self._ready.unlink(missing_ok=True)
        self._before, begun = _gpu_bytes(), time.monotonic()
        command = [sys.executable, "-m", "benchmarks.serving", *sys.argv[1:], "--serve"]
        with (self._folder / "server.log").open("w") as log:
            # A session of its own: its processes end with it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        while not self._ready.is_file():
            late = time.monotonic() - begun > _START_SECONDS
            if late or self._process.poll() is not None:
                self._end()
                raise SystemExit(f"the server did not start: see {log.name}")
            time.sleep(0.2)
        self.url = json.loads(self._ready.read_text())["url"]
        self.started_seconds = time.monotonic() - begun
        return self

    @property
    def gpu_bytes(self) -> int | None:
        """Memory of the GPU that the server takes now; None without a GPU."""
        now = _gpu_bytes()
        return None if now is None or self._before is None else now - self._before

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server and wait until its memory is free."""
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):  # no process of its session is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        time.sleep(_FREEING_SECONDS)


def _gpu_bytes() -> int | None:
    """Return the memory in use on the first visible GPU, by all processes; None without a GPU."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]  # noqa: TID251 - CUDA's own variable
    query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    command = ["nvidia-smi", *query, "-i", device]
    try:
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(text) * 2**20
