"""The progress of experiments and measurements: bars on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text
from typing_extensions import override

from modnorm.cli.console import on_one_line, output, stderr, visible

if TYPE_CHECKING:
    from modnorm.v1 import experiment_pb2 as experiments

    Event = experiments.WatchExperimentResponse

_LINE_SECONDS = 5.0
"""Least time between plain lines of one phase."""
_SPEED_SECONDS = 600.0
"""Time over which the rate of a phase is measured; an item may take minutes."""


class Screen(Progress):
    """How much of each phase is done, with a line of figures and the reason to wait.

    The rate of a phase counts from the first item that finishes while this process watches: the
    time before it may be the start of an engine.
    """

    def __init__(
        self, console: Console, title: str = "", *, line_seconds: float | None = None
    ) -> None:
        """Show bars, or lines at this interval: also on a terminal where one is given."""
        self._title = title
        self._line_seconds = line_seconds or _LINE_SECONDS
        self._phases: dict[str, TaskID] = {}
        self._phase: str | None = None
        """The phase that was shown last."""
        self._remarks, self._told = "", ""
        self._printed = 0.0
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _Speed(),
            console=console,
            speed_estimate_period=_SPEED_SECONDS,
            # Other output of this process is no part of the display.
            redirect_stdout=False,
            redirect_stderr=False,
            disable=output.quiet or line_seconds is not None or not console.is_terminal,
        )

    def show(
        self, phase: str, done: int, total: int, figures: Iterable[str] = (), reason: str = ""
    ) -> None:
        """Show that `done` of `total` items of a phase are finished."""
        is_change = phase != self._phase
        is_news = is_change or reason not in {"", self._told}
        if is_change:
            if self._phase is not None:
                self.stop_task(self._phases[self._phase])
            self._phase, self._told = phase, ""
            if phase not in self._phases:
                self._phases[phase] = self.add_task(phase, total=total or None, completed=done)
        task = self.tasks[self._phases[phase]]
        task.stop_time = None  # a phase goes on after the start of an engine
        is_news = is_news or task.completed < done == total
        self.update(task.id, completed=done, total=total or None)
        self._remarks, self._told = (
            on_one_line(", ".join(filter(None, [*figures, reason]))),
            reason or self._told,
        )
        if self.disable and (is_news or time.monotonic() - self._printed >= self._line_seconds):
            self._printed = time.monotonic()
            counts = [f"{done}/{total}", _speed(task)] if total else []
            self.note(", ".join(filter(None, [phase, *counts, self._remarks])))

    def note(self, remark: str) -> None:
        """Show a line that remains on the screen, above the bars."""
        if not output.quiet:
            title = f"{self._title}: " if self._title else ""
            self.console.print(f"{title}{remark}", soft_wrap=True, markup=False)

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        if self._title:
            yield Text(visible(self._title), style="bold")
        yield self.make_tasks_table(self.tasks)
        yield Text(visible(self._remarks))


class _Speed(ProgressColumn):
    @override
    def render(self, task: Task) -> Text:
        return Text(_speed(task))


def _speed(task: Task) -> str:
    """Return rate and remaining time as text; empty while they are unknown."""
    if not task.speed:
        return ""
    rate, remaining = f"{task.speed:.2f}/s", task.time_remaining
    if not remaining:
        return rate
    minutes, seconds = divmod(round(remaining), 60)
    return f"{rate}, ETA {minutes}:{seconds:02}"


@contextmanager
def counted(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many of all items are done, on a terminal only."""
    console = stderr()
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with Screen(console) as screen:
        yield partial(screen.show, name)


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Show that libraries are imported inside the context, which takes seconds."""
    with Screen(stderr()) as screen:
        screen.show(f"loading {what}", 0, 0)
        yield


def follow(
    events: "Iterable[Event]",
    screen: Screen,
    ensemble_size: int,
    base_reward: Callable[[], float | None],
) -> None:
    from modnorm.v1 import experiment_pb2 as experiments
    from modnorm.wire.run_messages import extent, phase_of

    rewarded = experiments.EXPERIMENT_STATE_SELECTING, experiments.EXPERIMENT_STATE_VOTING
    base: float | None = None
    for event in events:
        if base is None and event.state in rewarded:
            base = base_reward()
        reason = f"waiting: {event.waits_for}" if event.waits_for else ""
        figures = _figures(event.progress, base, ensemble_size)
        done, total, _ = extent(event)
        screen.show(phase_of(event), done, total, figures, reason)


def catch_up(events: "Iterable[Event]", now: "experiments.Experiment") -> "Iterator[Event]":
    """Yield the last event of each past phase, then all events from now on."""
    stream = iter(events)
    held: Event | None = None
    for event in stream:
        if held is not None and held.state != event.state:
            yield held
        held = event
        if event.cursor >= now.last_cursor:
            break
    if held is not None:
        yield held
    yield from stream


def rewards(progress: "experiments.Progress", base: float | None, size: int) -> list[str]:
    """Return the known selection rewards, each with its name."""
    texts = []
    if progress.HasField("best_reward"):
        texts.append(f"best reward {progress.best_reward:.4f}")
    if progress.HasField("threshold_reward"):
        texts.append(f"rank {size} reward {progress.threshold_reward:.4f}")
    if base is not None:
        texts.append(f"base reward {base:.4f}")
    return texts


def _figures(progress: "experiments.Progress", base: float | None, size: int) -> list[str]:
    figures = rewards(progress, base, size)
    if progress.updates_total and progress.jobs_total:
        figures.append(f"jobs {progress.jobs_done}/{progress.jobs_total}")
    if progress.jobs_failed:
        figures.append(f"failed {progress.jobs_failed}")
    return figures
