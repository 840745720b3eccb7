"""Progress of a long measurement by phase: bars on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from typing_extensions import override

from modnorm.cli.console import stderr
from modnorm.cli.pace import Pace, speed

_LINE_SECONDS = 5.0
"""Least time between plain lines of one phase."""


class Counts:
    """A display of how much of each phase is done; this one shows nothing."""

    def show(self, phase: str, done: int, total: int) -> None:
        """Show that `done` of `total` items of a phase are finished."""

    def note(self, remark: str) -> None:
        """Show a line that remains on the screen."""


@contextmanager
def counting(console: Console, *, quiet: bool) -> Iterator[Counts]:
    """Yield the display for a console: bars on a terminal, else lines."""
    if quiet:
        yield Counts()
    elif not console.is_terminal:
        yield _Lines(console)
    else:
        columns = (
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            yield _Bars(progress)


@contextmanager
def counted(name: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many of all items are done, on a terminal only.

    In a pipe errors are one line, and nothing else.
    """
    console = stderr()
    with counting(console, quiet=quiet or not console.is_terminal) as counts:
        yield partial(counts.show, name)


class _Bars(Counts):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    @override
    def show(self, phase: str, done: int, total: int) -> None:
        """Redraw."""
        if phase not in self._bars:
            self._bars[phase] = self._progress.add_task(phase, total=None)
        self._progress.update(self._bars[phase], completed=done, total=total)

    @override
    def note(self, remark: str) -> None:
        """Print above the bars."""
        self._progress.console.print(remark, soft_wrap=True, markup=False)


class _Lines(Counts):
    def __init__(self, console: Console) -> None:
        self._console = console
        self._paces: dict[str, Pace] = {}
        self._printed = 0.0

    @override
    def show(self, phase: str, done: int, total: int) -> None:
        """Print a line when a phase begins or ends, and when the last line is old."""
        now = time.monotonic()
        began = phase not in self._paces
        pace = self._paces.setdefault(phase, Pace(now, now, done, done))
        pace.count(done, now)
        if not began and done < total and now - self._printed < _LINE_SECONDS:
            return
        self._printed = now
        self.note(", ".join([f"{phase}, {done}/{total}", *speed(pace, total)]))

    @override
    def note(self, remark: str) -> None:
        """Print a line."""
        self._console.print(remark, soft_wrap=True, markup=False)
