"""Candidates that take turns in one engine, so that the best of them are scored first.

Early stop (`modnorm.search.stopping`) measures candidates by the scores that are complete: the
sooner the best ones are, the less of the others has to be scored. So a candidate rests once a part
of its rows is answered, for the next one to begin, and of those that rest the one with the best
answers goes on first. Which candidates are the best of all does not depend on their order.

Each candidate's work runs in a greenlet: it is written as if it ran through, in one thread.
"""

from collections.abc import Callable
from contextvars import copy_context
from math import ceil

import greenlet

SHARE = 0.6
"""Part of a candidate's rows that is answered before it rests: of the sizes that were tried in
`docs/early-stop.md` the one that leaves the least to do."""


class Turn:
    """One candidate's place in a race.

    Args:
        race: The race.
        number: How many began before it.
    """

    def __init__(self, race: "Race", number: int) -> None:
        self._race = race
        self._rested = False
        self.number = number
        self.standing = 0.0
        """Mean reward of its answers when it came to rest."""
        self.is_out: Callable[[], bool] = _is_in
        """Tells whether it need not go on."""
        self.given_up: BaseException | None = None
        """What it was given up with, while it rested."""

    def is_due(self, answered: int, rows: int) -> bool:
        """Tell whether to rest now: once at most, and only where others can begin.

        Args:
            answered: Rows that are answered.
            rows: Rows in all.
        """
        enough = ceil(SHARE * rows) <= answered < rows
        return enough and not self._rested and not self._race.is_full

    def rest(self, standing: float, is_out: Callable[[], bool]) -> None:
        """Let others go on; return when it is this one's turn again.

        Args:
            standing: Mean reward of its answers so far.
            is_out: Tells whether it need not go on.

        Raises:
            BaseException: what the race is given up with.
        """
        self._rested, self.standing, self.is_out = True, standing, is_out
        self._race.rest(self)


class Race:
    """Candidates that are open at once; used by one thread.

    Args:
        most: Candidates that rest at once; none does where it is 0.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = 0
        self._resting: dict[Turn, greenlet.greenlet] = {}
        self.active: Turn | None = None
        """Whose work is being done; may be looked at from any thread."""

    @property
    def resting(self) -> int:
        """Candidates that rest."""
        return len(self._resting)

    @property
    def is_full(self) -> bool:
        """Whether no other can come to rest."""
        return len(self._resting) >= self._most

    def begin(self, work: Callable[[Turn], None]) -> None:
        """Work on a candidate until its end, or until it comes to rest.

        Args:
            work: What there is to do; it rests by its turn. What it raises goes through.
        """
        turn = Turn(self, self._begun)
        self._begun += 1
        course = greenlet.greenlet(lambda: work(turn))
        course.gr_context = copy_context()
        self._switch_to(turn, course)

    def go_on(self) -> None:
        """End those that are out, and work on the best of the others until its end."""
        for turn in [turn for turn in self._resting if _is_over(turn)]:
            # One before it may have given it up.
            if turn in self._resting:
                self._resume(turn)
        if self._resting:
            self._resume(max(self._resting, key=lambda turn: (turn.standing, -turn.number)))

    def give_up(self, error: BaseException) -> None:
        """Raise an error in all that rest, in the order in which they began.

        May be called by the work of one that does not rest, or that is being given up.
        """
        while self._resting:
            turn = min(self._resting, key=lambda turn: turn.number)
            course = self._resting.pop(turn)
            course.parent = greenlet.getcurrent()
            turn.given_up = error
            course.throw(error)

    def rest(self, turn: Turn) -> None:
        """Switch from a turn's work to whoever began it or had it go on."""
        course = greenlet.getcurrent()
        if course.parent is None:
            raise AssertionError("a turn rests outside of its work")
        self._resting[turn] = course
        course.parent.switch()

    def _resume(self, turn: Turn) -> None:
        course = self._resting.pop(turn)
        course.parent = greenlet.getcurrent()
        self._switch_to(turn, course)

    def _switch_to(self, turn: Turn, course: greenlet.greenlet) -> None:
        self.active = turn
        try:
            course.switch()
        finally:
            self.active = None


def _is_in() -> bool:
    return False


def _is_over(turn: Turn) -> bool:
    """Tell whether a turn ends at once; what goes wrong in finding out, its own work says."""
    try:
        return turn.is_out()
    except Exception:  # noqa: BLE001 - any fault is the turn's own, not of whoever goes on
        return True
