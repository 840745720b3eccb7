"""The threshold of a candidate: the score below which early stop ends it."""

from modnorm.search.stopping import EarlyStop, Threshold
from modnorm.tasks import Task, stated_bounds
from modnorm.v1 import evaluation_pb2 as messages


class CandidateThreshold:
    """The threshold of a candidate, first from its job, then from responses to heartbeats."""

    def __init__(self, job: messages.Job) -> None:
        self.is_followed = job.split == messages.SPLIT_SELECTION and job.candidate >= 0
        self._threshold: Threshold | None = None
        if self.is_followed and job.HasField("threshold"):
            self.raise_to(job.threshold)

    def get(self) -> Threshold | None:
        """Return the threshold, or None while there is none."""
        return self._threshold

    def raise_to(self, threshold: messages.Threshold) -> None:
        """Replace the threshold unless the new one is lower."""
        new, old = Threshold(threshold.reward, threshold.index), self._threshold
        if old is None or new.excludes(old.reward, old.index):
            self._threshold = new


def early_stop(job: messages.Job, task: Task, threshold: CandidateThreshold) -> EarlyStop | None:
    """Return the rule that stops a job early; None if the job always runs to its end."""
    bounds = stated_bounds(task)
    if bounds is None or not threshold.is_followed:
        return None
    return EarlyStop(job.candidate, bounds, threshold.get)
