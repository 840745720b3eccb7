"""Events of a run with their times, written by the process that runs and read by the benchmark."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


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
        """Note an event that happens now."""
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
