"""What happens in a run: its events with their times, and how busy the GPU is by NVML.

NVML gives the percent of its last sampling period, of a sixth of a second to a second, in which a
kernel ran. So it counts a busy period, not how full the GPU was.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        name: A phase that begins, or `answer`, `token` or `answered` of one model.
        at: Time in seconds, as `time.time`.
        rows: Rows to be answered, of `answer`.
        first: What is equal for requests that begin with the same row, of `answer`.
    """

    name: str
    at: float
    rows: int = 0
    first: str = ""


class EventLog:
    """Collects events and writes them when the process ends: a write would take time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []

    def note(self, name: str, rows: int = 0, first: str = "") -> None:
        self._events.append(Event(name, time.time(), rows, first))

    def write(self, **figures: object) -> None:
        """Write the events, and figures beside them."""
        content = {"events": [asdict(event) for event in self._events], **figures}
        self._path.write_text(json.dumps(content))


def read_events(path: Path) -> tuple[Sequence[Event], dict[str, object]]:
    """Return the events of a process and its figures.

    Raises:
        SystemExit: the process wrote none.
    """
    if not path.exists():
        raise SystemExit(f"{path} was not written: see the log beside it")
    content = json.loads(path.read_text())
    return [Event(**event) for event in content.pop("events")], content


class GpuBusy:
    """Samples the utilisation of the first visible GPU inside the context; none without one."""

    def __init__(self, index: int) -> None:
        self.device = "cpu"
        """Name of the GPU; `cpu` without one."""
        self._percent: Callable[[], int] | None = None
        with suppress(Exception):  # no NVML, no samples
            import pynvml  # noqa: PLC0415 - an optional package

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self.device = str(pynvml.nvmlDeviceGetName(handle))
            self._percent = lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        self._samples: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def percent(self, begin: float, end: float) -> float | None:
        """Return the mean utilisation between two times; None without samples."""
        inside = [value for at, value in self._samples if begin <= at < end]
        return round(sum(inside) / len(inside), 1) if inside else None

    def _sample(self) -> None:
        with suppress(Exception):  # the GPU may be lost
            while self._percent and not self._ended.wait(EVERY_SECONDS):
                self._samples.append((time.time(), self._percent()))


def first_gpu(visible: str) -> int:
    """Return the index of the first GPU in CUDA_VISIBLE_DEVICES; 0 if it names none by number."""
    first = visible.split(",", maxsplit=1)[0].strip()
    return int(first) if first.isdigit() else 0


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return a quantile of values by rank; None without values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None
