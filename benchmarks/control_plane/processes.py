"""Services of a lab as separate processes, and what processes use of memory and CPU time."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import inherited_environment
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until

STOP_SECONDS = 60.0
"""Time that a service has to stop, after which it is killed and the benchmark fails."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def service(name: str, settings: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Run a service under its settings; yield its HOST:PORT and process id."""
    target = f"127.0.0.1:{free_port()}"
    named = {f"MODNORM_{key.upper()}": str(value) for key, value in settings.items()}
    environment = {**inherited_environment(), **named, "MODNORM_BIND_ADDRESS": target}
    with tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".log") as log:
        command = [sys.executable, "-m", f"modnorm.services.{name}.server"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(
                lambda: process.poll() is not None or check(target) == "SERVING", f"{name} serves"
            )
            if process.poll() is not None:
                raise SystemExit(f"the {name} does not start:\n{Path(log.name).read_text()}")
            yield target, process.pid
        finally:
            process.terminate()
            try:
                process.wait(timeout=STOP_SECONDS)
            finally:
                process.kill()
                process.wait()
            warnings = [one for one in Path(log.name).read_text().splitlines() if "warning" in one]
            print(*warnings[:5], sep="\n", end="\n" if warnings else "", file=sys.stderr)


@dataclass
class Usage:
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Resident MiB of one process with seconds since the start."""
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds by name, set at the end."""


@contextmanager
def observed(processes: Mapping[str, int], watched: str) -> Iterator[Usage]:
    """Measure processes and their children; the memory of one of them every second."""
    usage, over, start = Usage(), threading.Event(), time.monotonic()
    before = {name: _cpu_of(pid) for name, pid in processes.items()}

    def watch() -> None:
        while not over.is_set():
            pages = Path(f"/proc/{processes[watched]}/statm").read_text().split()[1]
            usage.memory.append((time.monotonic() - start, int(pages) * _PAGE_MIB))
            over.wait(1)

    thread = threading.Thread(target=watch, name="watch")
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()
        usage.cpu = {name: _cpu_of(pid) - before[name] for name, pid in processes.items()}


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its present and ended children."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    ticks = 0
    for one in (pid, *children):
        stat = Path(f"/proc/{one}/stat")
        text = stat.read_text() if stat.exists() else ""
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS
