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
        self._on_change = _ignore

    def enter(self, text: str) -> None:
        """Begin the next stage."""
        self.text = text
        self._on_change()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start an engine inside the context, whose end ends the last stage."""
        try:
            yield
        finally:
            self.enter("")

    def observe(self, on_change: Callable[[], None]) -> None:
        """Call a function at each change from now on, instead of an earlier one."""
        self._on_change = on_change


def _ignore() -> None:
    return None


STAGE = StartStage()
"""The stage of this process."""
