"""The bar of a candidate: the score below which early stop ends it."""

from modnorm.search.stopping import EarlyStop, Threshold
from modnorm.tasks import Task, stated_bounds
from modnorm.v1 import evaluation_pb2 as messages


class CandidateBar:
    """The bar of a candidate, first from its job, then from answers to heartbeats.

    Args:
        job: Any job; only candidates under selection have a bar.
    """

    def __init__(self, job: messages.Job) -> None:
        self.is_followed = job.split == messages.SPLIT_SELECTION and job.candidate >= 0
        self.about = (job.experiment_id, job.candidate) if self.is_followed else ("", 0)
        """Experiment and candidate that heartbeats ask about; no experiment for no bar."""
        self._bar: Threshold | None = None
        if self.is_followed and job.HasField("bar"):
            self.rise(job.bar)

    def get(self) -> Threshold | None:
        """Return the bar, or None while there is none."""
        return self._bar

    def rise(self, bar: messages.Bar) -> None:
        """Take a bar over unless it is lower."""
        new, old = Threshold(bar.reward, bar.index), self._bar
        if old is None or new.excludes(old.reward, old.index):
            self._bar = new


def early_stop(job: messages.Job, task: Task, bar: CandidateBar) -> EarlyStop | None:
    """Return when to stop a job; None if it always runs to its end."""
    bounds = stated_bounds(task)
    if bounds is None or not bar.is_followed:
        return None
    return EarlyStop(job.candidate, bounds, bar.get)
