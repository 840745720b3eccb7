"""A scheduler that lets candidates take turns in one engine, so that the best are scored first.

Early stop (`modnorm.search.stopping`) compares candidates with complete scores. The sooner the
best scores are complete, the more of the other candidates is skipped. So a candidate is parked
once a share of its rows is answered, and the next one begins. The parked candidate with the best
answers resumes first. The order does not change which candidates are best.

Each candidate's work runs in a greenlet: plain sequential code that is paused, all in one thread.
"""

from collections.abc import Callable
from contextvars import copy_context
from math import ceil

import greenlet

SHARE = 0.6
"""Share of a candidate's rows that is answered before it is parked.

Of all shares tried it leaves the least work (`docs/early-stop.md`).
"""


class Turn:
    """One candidate's place in a scheduler."""

    def __init__(self, scheduler: "Scheduler", number: int) -> None:
        self._scheduler = scheduler
        self._was_parked = False
        self.number = number
        self.mean_reward = 0.0
        """Mean reward of its answers when it was parked."""
        self.is_excluded: Callable[[], bool] = _never
        """Returns whether the parked candidate can stop."""
        self.abandoned_with: BaseException | None = None
        """The error that was raised in it while it was parked."""

    def is_due(self, answered: int, rows: int) -> bool:
        """Return whether to park now: at most once, and only if another candidate can begin."""
        enough = ceil(SHARE * rows) <= answered < rows
        return enough and not self._was_parked and not self._scheduler.is_full

    def park(self, mean_reward: float, is_excluded: Callable[[], bool]) -> None:
        """Let other candidates run; return when the scheduler resumes this one."""
        self._was_parked, self.mean_reward, self.is_excluded = True, mean_reward, is_excluded
        self._scheduler.park(self)


class Scheduler:
    """Candidates that are open at once; used by one thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = 0
        self._parked: dict[Turn, greenlet.greenlet] = {}
        self.active: Turn | None = None
        """The turn whose work runs now; may be read from any thread."""

    @property
    def parked(self) -> int:
        """The number of parked candidates."""
        return len(self._parked)

    @property
    def is_full(self) -> bool:
        """Whether no other candidate can be parked."""
        return len(self._parked) >= self._limit

    def begin(self, work: Callable[[Turn], None]) -> None:
        """Work on a candidate until it ends or is parked."""
        turn = Turn(self, self._begun)
        self._begun += 1
        fiber = greenlet.greenlet(lambda: work(turn))
        fiber.gr_context = copy_context()
        self._switch_to(turn, fiber)

    def resume_best(self) -> None:
        """Resume all excluded candidates, which stop; then the best other one until it ends."""
        for turn in [turn for turn in self._parked if _can_stop(turn)]:
            # An excluded candidate that ran before it may have abandoned it.
            if turn in self._parked:
                self._resume(turn)
        if self._parked:
            self._resume(max(self._parked, key=lambda turn: (turn.mean_reward, -turn.number)))

    def abandon(self, error: BaseException) -> None:
        """Raise an error in all parked candidates, in the order in which they began.

        The work of a candidate that is not parked, or that is being abandoned, may call it.
        """
        while self._parked:
            turn = min(self._parked, key=lambda turn: turn.number)
            fiber = self._parked.pop(turn)
            fiber.parent = greenlet.getcurrent()
            turn.abandoned_with = error
            fiber.throw(error)

    def park(self, turn: Turn) -> None:
        """Switch from a turn's work to the caller that began or resumed it."""
        fiber = greenlet.getcurrent()
        if fiber.parent is None:
            raise AssertionError("a turn must park inside its work")
        self._parked[turn] = fiber
        fiber.parent.switch()

    def _resume(self, turn: Turn) -> None:
        fiber = self._parked.pop(turn)
        fiber.parent = greenlet.getcurrent()
        self._switch_to(turn, fiber)

    def _switch_to(self, turn: Turn, fiber: greenlet.greenlet) -> None:
        self.active = turn
        try:
            fiber.switch()
        finally:
            self.active = None


def _never() -> bool:
    return False


def _can_stop(turn: Turn) -> bool:
    """Return whether a turn's work stops when resumed: it is excluded, or its check fails."""
    try:
        return turn.is_excluded()
    except Exception:  # noqa: BLE001 - the turn's own work repeats the check and raises the error
        return True
