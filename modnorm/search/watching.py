"""What is looked at between two decode steps of a candidate."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from modnorm.search.judging import Judging
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import Bar, EarlyStop


class Resting(Protocol):
    """Says when a candidate is parked; a turn of `modnorm.search.racing` does."""

    def is_due(self, answered: int, rows: int) -> bool:
        """Tell whether to rest now, with so many of its rows answered."""

    def rest(self, standing: float, is_out: Callable[[], bool]) -> None:
        """Return when it is the candidate's turn again.

        Args:
            standing: Mean reward of its answers so far.
            is_out: Tells whether it need not go on.
        """


class OutOfReachError(Exception):
    """The candidate is out."""


class Rest:
    """Parks the candidate when it is due.

    Args:
        parked: Lets others have the engine.
        has_room: Whether another candidate fits beside it.
        judging: Its answers.
        resting: Says when, and waits; None where it runs through.
    """

    def __init__(
        self,
        parked: Callable[[], AbstractContextManager[None]],
        has_room: Callable[[], bool],
        judging: Judging,
        resting: Resting | None,
    ) -> None:
        self._parked = parked
        self._has_room = has_room
        self._judging = judging
        self._resting = resting
        self.seconds = 0.0
        """Seconds in which others had the engine, switching included."""
        self.switching = 0.0
        """Seconds of them that it took to give the engine away and to have it again."""

    def take(self, is_out: Callable[[], bool], look: Callable[[], None]) -> None:
        """Rest if that is due.

        Args:
            is_out: Tells whether the candidate need not go on.
            look: Called before it goes on, with the engine free; may raise.
        """
        judging, resting = self._judging, self._resting
        if resting is None or not resting.is_due(judging.count, judging.total):
            return
        if not self._has_room():
            return
        began, others = time.perf_counter(), 0.0
        try:
            with self._parked():
                parked = time.perf_counter()
                try:
                    resting.rest(mean_reward(judging.rewards) if judging.rewards else 0.0, is_out)
                    look()
                finally:
                    others = time.perf_counter() - parked
        finally:
            self.seconds = time.perf_counter() - began
            self.switching = self.seconds - others


class Watch:
    """Looks, between decode steps, at whether the work goes on, and whether now.

    Args:
        judging: The answers.
        stop: When to stop.
        on_progress: Called at each look.
        rest: Parks the candidate.
    """

    def __init__(
        self,
        judging: Judging,
        stop: EarlyStop | None,
        on_progress: Callable[[int], None],
        rest: Rest,
    ) -> None:
        self._judging = judging
        self._stop = stop
        self._on_progress = on_progress
        self._rest = rest
        self._seen: tuple[int, Bar | None] | None = None
        self._out = False

    def __call__(self) -> None:
        """Raise when the candidate is out, or what `on_progress` raises."""
        self._look()
        self._rest.take(self._is_out, self._look)

    def _look(self) -> None:
        self._on_progress(self._judging.count)
        if self._is_out():
            raise OutOfReachError

    def _is_out(self) -> bool:
        judging, stop = self._judging, self._stop
        if stop is None or judging.complete or self._out:
            return self._out
        judging.look()
        seen = len(judging.rewards), stop.bar()
        if seen != self._seen:
            self._out = stop.decide(judging.rewards, judging.total) is not None
        self._seen = seen
        return self._out
