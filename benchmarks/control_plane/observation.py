"""Resource use of processes from /proc: memory over time and CPU time."""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Usage:
    """Measured use.

    Attributes:
        memory: Resident MiB of one process with seconds since the start.
        cpu: CPU seconds by name, set at the end.
    """

    memory: list[tuple[float, float]] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)


@contextmanager
def observed(processes: Mapping[str, int], watched: str) -> Iterator[Usage]:
    """Measure processes by name, with their children, inside the context.

    The memory of one of them, `watched`, is measured every second.
    """
    usage, over, start = Usage(), threading.Event(), time.monotonic()
    before = {name: _cpu_of(pid) for name, pid in processes.items()}

    def watch() -> None:
        while not over.is_set():
            usage.memory.append((time.monotonic() - start, resident(processes[watched])))
            over.wait(1)

    thread = threading.Thread(target=watch, name="watch")
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()
        after = {name: _cpu_of(pid) for name, pid in processes.items()}
        usage.cpu = {name: after[name] - before[name] for name in processes}


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MIB


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its present and ended children."""
    return sum(_fields(one) for one in (pid, *_children(pid)))


def _children(pid: int) -> Sequence[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _fields(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, text.rpartition(")")[2].split()[11:15])) / _TICKS
