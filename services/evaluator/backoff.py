"""How long a worker waits before its next job, by the ends of earlier ones."""

LONGEST_PAUSE = 60.0
"""Seconds; after failures in a row."""
UNFIT_PAUSE = 0.1
"""Seconds after a job that this worker cannot do: it may be able to do the next one."""
LONGEST_ROUND_PAUSE = 10.0
"""Seconds before the same unfit jobs are tried again; jobs that come meanwhile wait too."""


class JobBackoff:
    """The pause before the next job.

    Failures spend attempts. Each in a row doubles the pause, so that one broken worker does not
    spend the attempts of every job. An unfit job spends none and says nothing about the next job,
    so it costs a moment. A queue may hold only unfit jobs, which all come back: the pause before
    each further round of them doubles too.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._report_failures = 0
        self._unfit: set[str] = set()
        """Unfit jobs of this round. A round ends when one comes back, or a job is answered."""
        self._rounds = 0
        self._after_unfit = 0.0

    @property
    def seconds(self) -> float:
        """How long to wait now."""
        failures = self._failures + self._report_failures
        after_failures = min(2.0**failures, LONGEST_PAUSE) if failures else 0.0
        return max(after_failures, self._after_unfit)

    def begin(self) -> None:
        """Note that the pause for an unfit job is over, since a job begins."""
        self._after_unfit = 0.0

    def answered(self) -> None:
        """Note that the engine answered a job."""
        self._failures = 0
        self._unfit.clear()
        self._rounds = 0

    def reported(self) -> None:
        """Note that an answered job was scored and reported; from the background's thread."""
        self._report_failures = 0

    def failed(self, *, at_engine: bool) -> None:
        """Note an attempt that failed by no fault of the job, at the engine or in background."""
        if at_engine:
            self._failures += 1
        else:
            self._report_failures += 1

    def unfit(self, job_id: str) -> None:
        """Note that this worker cannot do a job, and another may."""
        self._after_unfit = UNFIT_PAUSE
        if job_id in self._unfit:
            self._unfit.clear()
            self._rounds += 1
            # Bounded, since a lone worker may wait for its sandbox for days.
            self._after_unfit = min(2.0 ** min(self._rounds, 10), LONGEST_ROUND_PAUSE)
        self._unfit.add(job_id)
