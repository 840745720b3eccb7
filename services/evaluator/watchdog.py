"""Signs of life of an engine, so that one that hangs is noticed.

A hang in a collective or in a kernel leaves the process, its health checks and its heartbeats
alive: only that no decode step ends tells.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOAD_FACTOR = 3.0
"""How much longer than a decode step the loading of a model may take."""


class Pulse:
    """Knows since when the engine has been silent; used from two threads.

    Args:
        seconds: Longest silence between two decode steps.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._limit = float("inf")
        self._deadline = float("inf")

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Expect the end of the context in time."""
        with self._within(LOAD_FACTOR * self._seconds):
            yield

    @contextmanager
    def working(self) -> Iterator[None]:
        """Expect signs of life inside the context."""
        with self._within(self._seconds):
            yield

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Expect nothing of work that rests inside the context, and signs of life again after."""
        self._expect(float("inf"))
        try:
            yield
        finally:
            self._expect(self._seconds)

    def beat(self) -> None:
        """Note a sign of life."""
        with self._lock:
            self._deadline = time.monotonic() + self._limit

    @property
    def has_stopped(self) -> bool:
        """Whether a sign of life is overdue."""
        with self._lock:
            return time.monotonic() > self._deadline

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        self._expect(seconds)
        try:
            yield
        finally:
            self._expect(float("inf"))

    def _expect(self, seconds: float) -> None:
        with self._lock:
            self._limit = seconds
            self._deadline = time.monotonic() + seconds
