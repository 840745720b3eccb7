"""Pauses of a worker: before its next job, and before it reconnects to the broker."""

import time
from collections.abc import Callable

LONGEST_PAUSE = 60.0
"""Seconds; after consecutive failures."""
UNFIT_PAUSE = 0.1
"""Seconds after a job that this worker cannot do: it may be able to do the next one."""
LONGEST_ROUND_PAUSE = 10.0
"""Seconds before the same unfit jobs are tried again; new jobs wait as long."""


class JobBackoff:
    """The pause before the next job.

    Each failure costs its job an attempt. Consecutive failures double the pause, so that one
    broken worker does not use up the attempts of every job. An unfit job costs no attempt and only
    a short pause. If the queue holds nothing but unfit jobs, they return in rounds. The pause
    doubles with each round.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._report_failures = 0
        self._unfit: set[str] = set()
        """Unfit jobs of this round. A round ends when one of them returns or a job is answered."""
        self._rounds = 0
        self._after_unfit = 0.0

    @property
    def seconds(self) -> float:
        """Length of the pause now."""
        failures = self._failures + self._report_failures
        # Bounded, since a worker may fail for days.
        after_failures = min(2.0 ** min(failures, 10), LONGEST_PAUSE) if failures else 0.0
        return max(after_failures, self._after_unfit)

    def begin(self) -> None:
        """End the pause after an unfit job, since the next job begins."""
        self._after_unfit = 0.0

    def answered(self) -> None:
        """Record that the engine answered a job."""
        self._failures = 0
        self._unfit.clear()
        self._rounds = 0

    def reported(self) -> None:
        """Record that an answered job was scored and reported; called by the background thread."""
        self._report_failures = 0

    def failed(self, *, at_engine: bool) -> None:
        """Record an infrastructure failure, at the engine or in the background."""
        if at_engine:
            self._failures += 1
        else:
            self._report_failures += 1

    def unfit(self, job_id: str) -> None:
        """Record a job that this worker cannot do but another may."""
        self._after_unfit = UNFIT_PAUSE
        if job_id in self._unfit:
            self._unfit.clear()
            self._rounds += 1
            # Bounded, since a lone worker may wait for its sandbox for days.
            self._after_unfit = min(2.0 ** min(self._rounds, 10), LONGEST_ROUND_PAUSE)
        self._unfit.add(job_id)


class ReconnectBackoff:
    """The pause before the next attempt: doubled up to a bound, reset after success.

    An attempt that lasts longer than the longest pause counts as success.
    """

    def __init__(
        self, first: float, most: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._most = most
        self._clock = clock
        self._next = first
        self._began = clock()

    def after_failure(self) -> float:
        """Return the seconds to wait before the next attempt."""
        now = self._clock()
        pause = self._first if now - self._began > self._most else self._next
        self._next = min(2 * pause, self._most)
        self._began = now + pause
        return pause
