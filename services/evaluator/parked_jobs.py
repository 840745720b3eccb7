"""Parked jobs: they keep their lease and their requests in the engine while others go first."""

from collections.abc import Callable
from functools import partial

from modnorm.search.polling import ParkingPolicy
from modnorm.search.scheduling import Scheduler, Turn
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.lease import HeldLease
from services.evaluator.watchdog import Watchdog


class ParkedJobs:
    """The job at the engine and those that are parked; used by one thread.

    Args:
        most: Jobs that are parked at once.
    """

    def __init__(self, most: int) -> None:
        self._scheduler = Scheduler(most)
        self._open: dict[Turn, messages.Job] = {}

    def __len__(self) -> int:
        return self._scheduler.parked

    @property
    def is_full(self) -> bool:
        """Whether jobs are parked, and no other can be."""
        return len(self) > 0 and self._scheduler.is_full

    @property
    def at_engine(self) -> messages.Job | None:
        """The job that is worked on now; may be read from any thread."""
        active = self._scheduler.active
        return self._open.get(active) if active else None

    def fits(self, job: messages.Job) -> bool:
        """Tell whether a job leaves the engine in the state that the parked jobs need."""
        return all(_state(job) == _state(other) for other in self._open.values())

    def begin(self, job: messages.Job, work: Callable[[Turn], None]) -> None:
        """Work on a job until it ends, or until the work parks it by its turn."""
        self._scheduler.begin(partial(self._work, job, work))

    def continue_best(self) -> None:
        """Finish the parked job with the best answers, and end those that are not wanted."""
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
    """A turn whose lease and watchdog expect no progress while its job is parked.

    Args:
        turn: The turn.
        watchdog: Watches the engine.
        lease: The lease of the job.
    """

    def __init__(self, turn: ParkingPolicy, watchdog: Watchdog, lease: HeldLease) -> None:
        self._turn = turn
        self._watchdog = watchdog
        self._lease = lease

    def is_due(self, answered: int, rows: int) -> bool:
        """Tell whether to park now, with so many rows answered; never while the worker stops."""
        return self._turn.is_due(answered, rows) and not self._lease.is_stopping

    def park(self, mean_reward: float, is_excluded: Callable[[], bool]) -> None:
        """Park the job; return at its next turn, which comes soon if the job is not wanted."""
        with self._watchdog.parked(), self._lease.parked():
            self._turn.park(mean_reward, lambda: self._lease.is_over or is_excluded())


def _state(job: messages.Job) -> tuple[str, int, str]:
    """Return what decides the state of the engine outside candidates."""
    return job.experiment_id, job.split, job.descriptor.lineage_digest
