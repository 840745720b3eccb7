"""The checks that run between two decode steps of a candidate."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from modnorm.search.judging import AnswerJudge
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import EarlyStop, Threshold


class ParkingPolicy(Protocol):
    """Decides when a candidate is parked, for example `modnorm.search.scheduling.Turn`."""

    def is_due(self, answered: int, rows: int) -> bool:
        """Return whether to park now that this many of its rows are answered."""

    def park(self, mean_reward: float, is_excluded: Callable[[], bool]) -> None:
        """Return when the candidate resumes."""


class ExcludedError(Exception):
    """Raised when a candidate can no longer become an expert."""


class CandidateParking:
    """Parks a candidate when its policy says so, and measures the time.

    Args:
        engine_parked: Context in which others may use the engine.
        has_room: Returns whether the engine has room for another candidate.
        answers: The candidate's answers.
        policy: Decides when, and waits; None for a candidate that is never parked.
    """

    def __init__(
        self,
        engine_parked: Callable[[], AbstractContextManager[None]],
        has_room: Callable[[], bool],
        answers: AnswerJudge,
        policy: ParkingPolicy | None,
    ) -> None:
        self._engine_parked = engine_parked
        self._has_room = has_room
        self._answers = answers
        self._policy = policy
        self.seconds = 0.0
        """Seconds for which the candidate was parked, switching included."""
        self.switching = 0.0
        """Seconds of these that releasing and acquiring the engine took."""

    def park_if_due(self, is_excluded: Callable[[], bool], check: Callable[[], None]) -> None:
        """Park the candidate if its policy says so and the engine has room for another.

        Args:
            is_excluded: Returns whether the candidate can stop.
            check: Called before it resumes, while the engine is still free; may raise.
        """
        answers, policy = self._answers, self._policy
        if policy is None or not policy.is_due(answers.count, answers.total):
            return
        if not self._has_room():
            return
        began, others = time.perf_counter(), 0.0
        try:
            with self._engine_parked():
                parked = time.perf_counter()
                try:
                    reward = mean_reward(answers.rewards) if answers.rewards else 0.0
                    policy.park(reward, is_excluded)
                    check()
                finally:
                    others = time.perf_counter() - parked
        finally:
            self.seconds = time.perf_counter() - began
            self.switching = self.seconds - others


class CandidatePoll:
    """Reports progress, stops an excluded candidate and parks a due one, between decode steps.

    Args:
        answers: The candidate's answers.
        stop: When to stop; None for a candidate that is scored completely.
        on_progress: Called at each check with the number of answers.
        parking: Parks the candidate.
    """

    def __init__(
        self,
        answers: AnswerJudge,
        stop: EarlyStop | None,
        on_progress: Callable[[int], None],
        parking: CandidateParking,
    ) -> None:
        self._answers = answers
        self._stop = stop
        self._on_progress = on_progress
        self._parking = parking
        self._last_state: tuple[int, Threshold | None] | None = None
        self._excluded = False

    def __call__(self) -> None:
        """Run the checks.

        Raises:
            ExcludedError: the candidate can be no expert any more.
            Exception: `on_progress` raised it.
        """
        self._check()
        self._parking.park_if_due(self._is_excluded, self._check)

    def _check(self) -> None:
        self._on_progress(self._answers.count)
        if self._is_excluded():
            raise ExcludedError

    def _is_excluded(self) -> bool:
        answers, stop = self._answers, self._stop
        if stop is None or answers.complete or self._excluded:
            return self._excluded
        answers.collect_rewards()
        state = len(answers.rewards), stop.threshold()
        if state != self._last_state:
            self._excluded = stop.decide(answers.rewards, answers.total) is not None
        self._last_state = state
        return self._excluded
