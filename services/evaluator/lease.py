"""A lease, kept alive beside the work."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Self

from modnorm.errors import CancelledError, ModnormError, NotFoundError, StaleLeaseError
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.candidate_bar import Hurdle
from services.evaluator.heartbeats import Heartbeats
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import LOAD_FACTOR

LEAST_SILENCE = 1_800.0
"""A worker that shows no sign of life lets its lease go after this many seconds at the earliest:
loading a large model takes minutes, a decode step never does."""
_MARGIN = 60.0
"""Seconds in which the watchdog ends a worker that hangs, and fails its job, before that."""

logger = logging.getLogger(__name__)


def longest_silence(stall_seconds: float) -> float:
    """Return for how many seconds a lease is kept without a sign of life.

    Args:
        stall_seconds: Of the worker's settings; a model may take `LOAD_FACTOR` times as long.
    """
    return max(LEAST_SILENCE, LOAD_FACTOR * stall_seconds + _MARGIN)


class HandedBackError(Exception):
    """The worker cannot go on with the job, through no fault of the job's."""

    def __init__(self, reason: str = "the worker is stopping") -> None:
        super().__init__(reason)


class GivenUpError(HandedBackError):
    """The same of all that rest; whoever ends them so hands them back, in one go."""


class HeldLease:
    """Context in which a lease is extended, and which says when to stop.

    Args:
        heartbeats: Keep it alive.
        lease: The lease.
        shutdown: Says when to hand it back.
        hurdle: Told of the bar whenever a heartbeat is.
        silence_seconds: How long it is kept without a sign of life.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        lease: messages.Lease,
        shutdown: Shutdown,
        *,
        hurdle: Hurdle | None = None,
        silence_seconds: float = LEAST_SILENCE,
    ) -> None:
        self.lease = lease
        self.total = 0
        """Answers in all, for the progress that heartbeats carry."""
        self.context = copy_context()
        self._heartbeats = heartbeats
        self._shutdown = shutdown
        self._hurdle = hurdle
        self._silence_seconds = silence_seconds
        self._done = 0
        self._resting = False
        self._alive = time.monotonic()
        self._verdict: ModnormError | None = None

    def __enter__(self) -> Self:
        self._heartbeats.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._heartbeats.remove(self)

    def progress(self, done: int) -> None:
        """Note progress, and stop when the work is not wanted or the worker is to end.

        Raises:
            CancelledError: a heartbeat was answered so.
            StaleLeaseError: the lease is lost.
            HandedBackError: the grace period is over.
        """
        self._done = done
        self._alive = time.monotonic()
        if self._verdict is not None:
            raise self._verdict
        if self._shutdown.overdue:
            raise HandedBackError

    @property
    def is_over(self) -> bool:
        """Whether a heartbeat was told to stop: `progress` raises why."""
        return self._verdict is not None

    @property
    def ends(self) -> bool:
        """Whether the worker is stopping: what it has begun it finishes first, or hands back."""
        return self._shutdown.requested.is_set()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Expect no progress inside the context: the job is in hand, and others go first.

        That it rests is told at once: should the next job end the worker, this one bears no blame.
        Those others may be complete by its end: what the aggregator says then is heard before the
        work goes on, which may be over before the next heartbeat is due. And it hears that the job
        is at the engine again: should that end the worker, it counts as an attempt. That is said
        once what was being said before, perhaps that it rests, is answered.
        """
        self._alive, self._resting = float("inf"), True
        self._heartbeats.hasten()
        try:
            yield
            self._resting = False
            if self._verdict is None:
                self._heartbeats.send([self])
        finally:
            self._alive = time.monotonic()

    def lasts(self) -> bool:
        """Tell whether it is to be kept: the work is wanted, and shows signs of life."""
        if self._verdict is not None:
            return False
        if time.monotonic() - self._alive > self._silence_seconds:
            self._say(logging.ERROR, "no progress, letting the lease go")
            return False
        return True

    def beat(self) -> messages.HeartbeatRequest:
        """Return the heartbeat that is due now."""
        experiment_id, candidate = self._hurdle.about if self._hurdle else ("", 0)
        return messages.HeartbeatRequest(
            lease=self.lease,
            answers_done=self._done,
            answers_total=self.total,
            experiment_id=experiment_id,
            candidate=candidate,
            resting=self._resting,
        )

    def hear(self, answer: messages.HeartbeatResponse | ModnormError) -> None:
        """Take in what a heartbeat was answered, or why it was not."""
        match answer:
            case StaleLeaseError():
                self._verdict = answer
            case NotFoundError():
                # The job is gone, which is no fault of the engine.
                self._verdict = StaleLeaseError(answer.message)
            case ModnormError():
                # Whatever went wrong over there says nothing about the lease, which may well last.
                self._say(logging.WARNING, "heartbeat failed: %s", answer)
            case _:
                if answer.cancel:
                    self._verdict = CancelledError("the work is not wanted any more")
                if self._hurdle and answer.HasField("bar"):
                    self._hurdle.rise(answer.bar)

    def _say(self, level: int, message: str, *values: object) -> None:
        """Log in the name of the work under the lease: heartbeats have a thread of their own."""
        names = {"job": self.lease.job_id, "token": self.lease.token}
        # A copy: a call by itself is within the context already.
        self.context.copy().run(logger.log, level, message, *values, extra=names)
