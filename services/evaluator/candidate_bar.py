"""What of a job need not be done: rows that are settled, candidates that are out."""

from collections.abc import Sequence
from dataclasses import replace

from modnorm.search.scoring import CandidateResult
from modnorm.search.stopping import Bar, EarlyStop
from modnorm.tasks import Task, stated_bounds
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_from_proto


class Hurdle:
    """The bar of a candidate as this worker knows it: with its job, then by heartbeats.

    Args:
        job: Any job; only candidates that are being selected have a bar.
    """

    def __init__(self, job: messages.Job) -> None:
        self.followed = job.split == messages.SPLIT_SELECTION and job.candidate >= 0
        self.about = (job.experiment_id, job.candidate) if self.followed else ("", 0)
        """The experiment and the candidate whose bar is wanted; no experiment where none is."""
        self._bar: Bar | None = None
        if self.followed and job.HasField("bar"):
            self.rise(job.bar)

    def bar(self) -> Bar | None:
        """Return the bar; None where there is none."""
        return self._bar

    def rise(self, bar: messages.Bar) -> None:
        """Take in a bar that was heard of; one that is not higher changes nothing."""
        new, old = Bar(bar.reward, bar.index), self._bar
        if old is None or new.shuts_out(old.reward, old.index):
            self._bar = new


def early_stop(job: messages.Job, task: Task, hurdle: Hurdle) -> EarlyStop | None:
    """Return when to stop; None where the job is done to its end, whatever is heard."""
    bounds = stated_bounds(task)
    if bounds is None or not hurdle.followed:
        return None
    return EarlyStop(job.candidate, bounds, hurdle.bar)


def open_rows(job: messages.Job, count: int) -> Sequence[int]:
    """Return which of the rows need an answer, ascending."""
    skipped = set(job.skipped_rows)
    return [row for row in range(count) if row not in skipped]


def split_name(job: messages.Job) -> str:
    """Return what the rows of a job are, in lower case: `selection`."""
    return messages.Split.Name(job.split).removeprefix("SPLIT_").lower()


def renumbered(result: CandidateResult, rows: Sequence[int]) -> CandidateResult:
    """Return a result whose answers have the numbers of their rows in the whole split."""
    answers = tuple(replace(answer, row=rows[answer.row]) for answer in result.answers)
    return replace(result, answers=answers)


def nothing_to_answer(job: messages.Job) -> CandidateResult:
    """Return the result of an expert that every vote is settled without."""
    return CandidateResult(descriptor_from_proto(job.descriptor), (), 0.0, 0.0, 0.0)
