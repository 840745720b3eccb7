"""How long a worker waits before its next job, by what became of the ones before."""

LONGEST_PAUSE = 60.0
"""Seconds; with failures in a row."""
UNFIT_PAUSE = 0.1
"""Seconds after a job that this worker is not fit for: what comes next may be another's."""
LONGEST_ROUND_PAUSE = 10.0
"""Seconds before such jobs are gone through once more; a job that comes meanwhile waits too."""


class Pauses:
    """The pause before the next job; told of the end of each.

    Failures spend attempts: each in a row doubles the pause, lest one broken worker spend those
    of every job. A job that the worker is not fit for spends none, and says nothing of the next
    one, so it costs a moment only. It comes back, though, and a queue may hold nothing else:
    before it is looked at again the worker waits, twice as long each time round.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._late_failures = 0
        self._unfit: set[str] = set()
        """Jobs of this round: since the last longer pause, or since another job was answered."""
        self._rounds = 0
        self._after_unfit = 0.0

    @property
    def seconds(self) -> float:
        """How long to wait now."""
        failures = self._failures + self._late_failures
        after_failures = min(2.0**failures, LONGEST_PAUSE) if failures else 0.0
        return max(after_failures, self._after_unfit)

    def begin(self) -> None:
        """Note that a job is looked at: what was waited for an unfit one has been waited."""
        self._after_unfit = 0.0

    def answered(self) -> None:
        """Note that the engine answered a job."""
        self._failures = 0
        self._unfit.clear()
        self._rounds = 0

    def reported(self) -> None:
        """Note that an answered job was judged and reported; from the thread that did it."""
        self._late_failures = 0

    def failed(self, *, at_engine: bool) -> None:
        """Note that an attempt failed through no fault of the job.

        Args:
            at_engine: Whether it was being answered; else it was behind the engine.
        """
        if at_engine:
            self._failures += 1
        else:
            self._late_failures += 1

    def unfit(self, job_id: str) -> None:
        """Note that this worker cannot do a job, which another may."""
        self._after_unfit = UNFIT_PAUSE
        if job_id in self._unfit:
            self._unfit.clear()
            self._rounds += 1
            # The exponent is held: a lone worker may wait for its sandbox for days.
            self._after_unfit = min(2.0 ** min(self._rounds, 10), LONGEST_ROUND_PAUSE)
        self._unfit.add(job_id)
