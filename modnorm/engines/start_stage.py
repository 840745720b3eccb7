"""What the start of this process's engine does now, for displays of progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StartStage:
    """One thread starts an engine and sets the stage, others read it.

    An engine's library has its own processes and no means to pass a callback to them, so the
    stage belongs to the process.
    """

    def __init__(self) -> None:
        self.text = ""
        """The stage in words; empty while no engine starts."""
        self._on_change: Callable[[], None] | None = None

    def enter(self, text: str) -> None:
        """Begin the next stage."""
        self.text = text
        if self._on_change is not None:
            self._on_change()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start an engine inside the context, whose end ends the last stage."""
        try:
            yield
        finally:
            self.enter("")

    @contextmanager
    def observed(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Call a function at each change inside the context."""
        self._on_change = on_change
        try:
            yield
        finally:
            self._on_change = None


STAGE = StartStage()
"""The stage of this process."""
