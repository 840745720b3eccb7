"""A tracker that works in a thread of its own and cannot harm the run."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from modnorm.tracking.registry import StartTracker
from modnorm.tracking.tracker import Point, RunStatus, TrackedRun, Tracker


class BackgroundTracker:
    """Hands the calls of a tracker to a thread, in order.

    After the first failure it warns once and logs nothing more.

    Args:
        start: Makes the tracker.
        warn: Called with one line about the failure, in the thread.
    """

    def __init__(self, start: StartTracker, warn: Callable[[str], None]) -> None:
        self._start = start
        self._warn = warn
        self._tracker: Tracker | None = None
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tracker")

    def start(self, run: TrackedRun) -> None:
        """Start or continue the run."""
        self._submit(lambda tracker: tracker.start(run))

    def log(self, point: Point) -> None:
        """Log figures of a phase."""
        self._submit(lambda tracker: tracker.log(point))

    def summarize(self, values: Mapping[str, float]) -> None:
        """Log the final figures."""
        self._submit(lambda tracker: tracker.summarize(values))

    def attach(self, files: Mapping[str, Path]) -> None:
        """Store files, and wait until all calls so far are done."""
        self._submit(lambda tracker: tracker.attach(files)).result()

    def end(self, outcome: RunStatus) -> None:
        """End the run, and wait until the tracker has all of it."""
        self._submit(lambda tracker: tracker.end(outcome))
        self._thread.shutdown()

    def _submit(self, call: Callable[[Tracker], None]) -> "Future[None]":
        return self._thread.submit(self._attempt, call)

    def _attempt(self, call: Callable[[Tracker], None]) -> None:
        if self._has_failed:
            return
        try:
            if self._tracker is None:
                self._tracker = self._start()
            call(self._tracker)
        except Exception as error:  # noqa: BLE001 - a tracker's library raises anything
            self._has_failed = True
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
            self._warn(f"the tracker failed and logs nothing more: {reason}")
