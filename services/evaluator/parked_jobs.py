"""Parked jobs: they keep lease and engine requests while other jobs use the engine."""

from collections.abc import Callable
from functools import partial

from modnorm.search.scheduling import Scheduler, Turn
from modnorm.search.scoring import ParkingPolicy
from modnorm.services.evaluator.lease import CandidateLease
from modnorm.services.evaluator.watchdog import Watchdog
from modnorm.v1 import evaluation_pb2 as messages


class ParkedJobs:
    """The job at the engine and the parked jobs; used by one thread."""

    def __init__(self, limit: int) -> None:
        self._scheduler = Scheduler(limit)
        self._open: dict[Turn, messages.Job] = {}

    def __len__(self) -> int:
        return self._scheduler.parked

    @property
    def is_full(self) -> bool:
        """Whether jobs are parked and no further job can be parked."""
        return len(self) > 0 and self._scheduler.is_full

    @property
    def at_engine(self) -> messages.Job | None:
        """The job that uses the engine now; may be read from any thread."""
        active = self._scheduler.active
        return self._open.get(active) if active else None

    def fits(self, job: messages.Job) -> bool:
        """Return whether a job needs the same engine state as the parked jobs."""
        return all(_state(job) == _state(other) for other in self._open.values())

    def begin(self, job: messages.Job, work: Callable[[Turn], None]) -> None:
        """Work on a job until it ends or the work parks it through its turn."""
        self._scheduler.begin(partial(self._work, job, work))

    def continue_best(self) -> None:
        """Finish the parked job with the best answers; end the jobs that are no longer needed."""
        self._scheduler.resume_best()

    def abandon(self, error: BaseException) -> None:
        """Raise an error in all parked jobs."""
        self._scheduler.abandon(error)

    def _work(self, job: messages.Job, work: Callable[[Turn], None], turn: Turn) -> None:
        self._open[turn] = job
        try:
            work(turn)
        finally:
            del self._open[turn]


class ParkingTurn:
    """A turn that suspends the watchdog and marks the lease while its job is parked."""

    def __init__(self, turn: ParkingPolicy, watchdog: Watchdog, lease: CandidateLease) -> None:
        self._turn = turn
        self._watchdog = watchdog
        self._lease = lease

    def is_due(self, answered: int, rows: int) -> bool:
        """Return whether to park now, after `answered` rows; never while the worker stops."""
        return self._turn.is_due(answered, rows) and not self._lease.is_stopping

    def park(self, mean_reward: float, is_excluded: Callable[[], bool]) -> None:
        """Park the job until its next turn, which comes soon if the job is no longer needed."""
        with self._watchdog.parked(), self._lease.parked():
            self._turn.park(mean_reward, lambda: self._lease.is_ended or is_excluded())


def _state(job: messages.Job) -> tuple[str, int, str]:
    """Return the fields of a job that determine the engine's state outside candidates."""
    return job.experiment_id, job.split, job.descriptor.lineage_digest
