"""Jobs that rest, with a lease and no engine, while others go first."""

from collections.abc import Callable

from modnorm.search.watching import Resting
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.lease import HeldLease
from services.evaluator.watchdog import Pulse


class QuietTurn:
    """A turn of which neither the lease nor the watch over the engine expects life while it rests.

    Args:
        turn: The turn.
        pulse: The watch over the engine.
        lease: The lease of its job.
    """

    def __init__(self, turn: Resting, pulse: Pulse, lease: HeldLease) -> None:
        self._turn = turn
        self._pulse = pulse
        self._lease = lease

    def is_due(self, answered: int, rows: int) -> bool:
        """Tell whether to rest now, with so many rows answered; not while the worker stops."""
        return self._turn.is_due(answered, rows) and not self._lease.ends

    def rest(self, standing: float, is_out: Callable[[], bool]) -> None:
        """Return when it is this job's turn again, which it is soon where it is not wanted."""
        with self._pulse.resting(), self._lease.resting():
            self._turn.rest(standing, lambda: self._lease.is_over or is_out())


def fits_beside(job: messages.Job, resting: messages.Job) -> bool:
    """Whether a job leaves the engine as one that rests needs it: same model, same state."""
    return (
        job.experiment_id == resting.experiment_id
        and job.split == resting.split
        and job.descriptor.lineage_digest == resting.descriptor.lineage_digest
    )
