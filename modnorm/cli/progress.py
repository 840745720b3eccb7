"""The progress of experiments and measurements: bars on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

from modnorm.analysis.phase_times import STARTING, phase_name
from modnorm.cli.console import stderr, visible
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name
from modnorm.wire.run_messages import extent, phase_of

Event = experiments.WatchExperimentResponse

_LINE_SECONDS = 5.0
"""Least time between plain lines of one phase."""
_LEAST_SECONDS = 0.05
"""Least time of a phase whose seconds are shown at its end."""


@dataclass
class Pace:
    """Rate of one phase from the first item on that finishes while this process watches.

    The time before that item may be the start of an engine. Items finished earlier (before a
    resumed run, in replayed events) do not count.
    """

    opened: float
    """Time in seconds from which this process watches."""
    started: float = 0.0
    """Time at which counting started."""
    base: int = 0
    """Items finished by then."""
    done: int = 0
    """Items finished by now."""
    at: float = 0.0
    """Time of the last counted item."""

    def count(self, done: int, at: float) -> None:
        """Record `done` items at time `at`."""
        if done == self.done:
            return
        if not self.started or at < self.opened:
            self.base = done
            self.started = at if at >= self.opened else 0.0
        self.done, self.at = done, at

    @property
    def rate(self) -> float | None:
        """Items per second; None before the first."""
        counted, seconds = self.done - self.base, self.at - self.started
        return counted / seconds if counted > 0 and seconds > 0 else None

    def remaining(self, total: int) -> float | None:
        """Return seconds until `total` items are done; None while the rate is unknown."""
        rate = self.rate
        return (total - self.done) / rate if rate else None


def speed(pace: Pace, total: int) -> list[str]:
    """Return rate and remaining time as text; empty while they are unknown."""
    rate, remaining = pace.rate, pace.remaining(total)
    if rate is None or remaining is None:
        return []
    minutes, seconds = divmod(round(remaining), 60)
    eta = [f"ETA {minutes}:{seconds:02}"] if pace.done < total else []
    return [f"{rate:.2f}/s", *eta]


class Display:
    """A display of events; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Event, base: float | None) -> None:
        """Show the state after an event."""


def display(console: Console, title: str, ensemble_size: int, *, quiet: bool) -> Display:
    """Return the display for a console: live on a terminal, else lines."""
    if quiet:
        return Display()
    if console.is_terminal:
        return LiveDisplay(console, title, ensemble_size)
    return LineDisplay(console, title, ensemble_size)


def follow(
    events: Iterable[Event], screen: Display, base_reward: Callable[[], float | None]
) -> None:
    """Show events until there are no more.

    `base_reward` returns the reward of the base, or None; it is called until the reward is known.
    """
    base: float | None = None
    for event in events:
        if base is None and event.state in _REWARDED:
            base = base_reward()
        screen.show(event, base)


def catch_up(events: Iterable[Event], now: experiments.Experiment) -> Iterator[Event]:
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


class LineDisplay(Display):
    """One line per phase, one every few seconds inside it, one per reason to wait."""

    def __init__(self, console: Console, title: str, ensemble_size: int) -> None:
        self._console = console
        self._title = title
        self._ensemble_size = ensemble_size
        self._phases = _Phases()
        self._phase: int | None = None
        self._reason = ""
        self._printed = 0.0

    @override
    def show(self, event: Event, base: float | None) -> None:
        """Print a line if the phase or the reason to wait changed, or the last line is old."""
        ended, pace = self._phases.observe(event)
        now = time.monotonic()
        waiting = _waiting(event)
        is_new = event.state != self._phase or ended or (waiting and waiting != self._reason)
        if not is_new and now - self._printed < _LINE_SECONDS:
            return
        self._reason = waiting or ("" if event.state != self._phase else self._reason)
        self._phase, self._printed = event.state, now
        done, total = extent(event)
        parts = [f"{self._title}: {state_name(event.state)}"]
        if total:
            parts += [f"{done}/{total}", *speed(pace, total)]
        parts += [f"{phase_name(ended)} took {self._phases.seconds(ended):.1f} s"] if ended else []
        parts += _figures(event.progress, base, self._ensemble_size)
        parts += [waiting] if waiting else []
        if self._phases.name == STARTING:
            parts.append(f"{self._phases.seconds(STARTING):.0f} s")
        self._console.print(", ".join(parts), soft_wrap=True, markup=False)


class LiveDisplay(Display):
    """A bar with seconds per phase, a line with the best rewards, and the reason to wait."""

    def __init__(self, console: Console, title: str, ensemble_size: int) -> None:
        self._ensemble_size = ensemble_size
        self._phases = _Phases()
        self._tasks: dict[str, TaskID] = {}
        self._figures = Text()
        self._waiting = Text()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            _Seconds(self._phases),
            TextColumn("{task.fields[speed]}", markup=False),
            console=console,
        )
        self._live = Live(
            Group(Text(visible(title), style="bold"), self._bars, self._figures, self._waiting),
            console=console,
            # Other output of this process is no part of the display.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    @override
    def __enter__(self) -> Self:
        self._live.start()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @override
    def show(self, event: Event, base: float | None) -> None:
        """Redraw."""
        _, pace = self._phases.observe(event)
        done, total = extent(event)
        starts = self._phases.name == STARTING
        if starts:
            self._bars.update(self._task(STARTING), speed=visible(event.progress.engine_stage))
        elif STARTING in self._tasks:
            self._bars.update(self._tasks[STARTING], completed=1, total=1, speed="")
        if event.state in _WORKING and total and not starts:
            shown = "  ".join(speed(pace, total))
            task = self._task(self._phases.name)
            self._bars.update(task, completed=done, total=total, speed=shown)
        self._figures.plain = "   ".join(_figures(event.progress, base, self._ensemble_size))
        self._waiting.plain = visible(_waiting(event))

    def _task(self, phase: str) -> TaskID:
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(phase, total=None, speed="")
        return self._tasks[phase]


class _Phases:
    """The pace and the seconds of each phase so far."""

    def __init__(self) -> None:
        self.name = ""
        """The present phase."""
        self._state = 0
        self._opened = time.time()
        self._paces: dict[int, Pace] = {}
        self._seconds: dict[str, float] = {}
        self._since = 0.0

    def observe(self, event: Event) -> tuple[str, Pace]:
        """Return the phase that the event ended if it took noticeable time, and the pace."""
        at = event.time.ToMicroseconds() / 1e6
        before, state = self.name, self._state
        if before:
            self._seconds[before] = self.seconds(before) + at - self._since
        self.name, self._state, self._since = phase_of(event), event.state, at
        # A phase goes on after the start of an engine.
        has_ended = before != self.name and (before == STARTING or state != event.state)
        is_timed = has_ended and self.seconds(before) >= _LEAST_SECONDS
        done, _ = extent(event)
        pace = self._paces.setdefault(event.state, Pace(self._opened))
        pace.count(done, at)
        return before if is_timed else "", pace

    def seconds(self, phase: str) -> float:
        """Return the seconds of a phase until the last event."""
        return self._seconds.get(phase, 0.0)

    def seconds_now(self, phase: str) -> float:
        """Return the seconds of a phase until now."""
        running = time.time() - self._since if phase == self.name else 0.0
        return self.seconds(phase) + max(0.0, running)


class _Seconds(TextColumn):
    """The seconds of a phase, which go on between events."""

    def __init__(self, phases: _Phases) -> None:
        super().__init__("")
        self._phases = phases

    @override
    def render(self, task: Task) -> Text:
        return Text(f"{self._phases.seconds_now(task.description):.0f} s")


_WORKING = frozenset(
    {
        experiments.EXPERIMENT_STATE_CALIBRATING,
        experiments.EXPERIMENT_STATE_SELECTING,
        experiments.EXPERIMENT_STATE_VOTING,
    }
)
_REWARDED = frozenset(
    {experiments.EXPERIMENT_STATE_SELECTING, experiments.EXPERIMENT_STATE_VOTING}
)


def _waiting(event: Event) -> str:
    """Return the reason to wait since this event, or nothing."""
    return f"waiting: {event.waits_for}" if event.waits_for else ""


def rewards(progress: experiments.Progress, base: float | None, size: int) -> list[str]:
    """Return the known selection rewards, each with its name."""
    texts = []
    if progress.HasField("best_reward"):
        texts.append(f"best reward {progress.best_reward:.4f}")
    if progress.HasField("threshold_reward"):
        texts.append(f"rank {size} reward {progress.threshold_reward:.4f}")
    if base is not None:
        texts.append(f"base reward {base:.4f}")
    return texts


def _figures(progress: experiments.Progress, base: float | None, size: int) -> list[str]:
    figures = rewards(progress, base, size)
    if progress.candidates_stopped:
        figures.append(f"stopped early {progress.candidates_stopped}")
    if progress.updates_total and progress.jobs_total:
        figures.append(f"jobs {progress.jobs_done}/{progress.jobs_total}")
    if progress.jobs_failed:
        figures.append(f"failed {progress.jobs_failed}")
    return figures


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
