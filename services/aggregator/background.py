"""Work that goes on without a caller."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from modnorm.errors import UnavailableError
from services.aggregator.dispatcher import Dispatcher
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.notifier import Notifier
from services.aggregator.rows import AnyJob
from services.aggregator.stores.jobs import Change, JobStore
from services.common.logging import naming

logger = logging.getLogger(__name__)


async def repeat(action: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do something now and again and again until cancelled, whatever goes wrong.

    Args:
        action: What to do; its errors are logged, and it is done again all the same.
        seconds: Pause between the end of one time and the next.
    """
    while True:
        try:
            await action()
        except UnavailableError as error:
            logger.warning("put off: %s", error)
        except Exception:
            logger.exception("background work failed")
        await asyncio.sleep(seconds)


class Changes:
    """Follows up on what transactions changed: wakes watchers, publishes jobs.

    Args:
        notifier: Wakes watchers.
        dispatcher: Publishes jobs.
    """

    def __init__(self, notifier: Notifier, dispatcher: Dispatcher) -> None:
        self._notifier = notifier
        self._dispatcher = dispatcher

    def follow_up(self, change: Change) -> None:
        """Tell everybody concerned; used in the event loop."""
        self._dispatcher.send(change.pending)
        self._notifier.ring(change.experiment_id)


class Hearing:
    """Knows for how long workers could be heard without a gap; used in one thread.

    Args:
        lease_seconds: How long a lease lasts without a heartbeat.
        pause: Seconds between two looks.
        clock: A time that no one sets, in seconds.
        date: The time that leases end by, in seconds since the epoch.
    """

    def __init__(
        self,
        lease_seconds: float,
        pause: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._lease_seconds = lease_seconds
        self._longest = pause + lease_seconds / 2
        self._clock = clock
        self._date = date
        self._since = clock()
        self._last = self._since, date()

    def look(self) -> bool:
        """Note that workers can be heard now; tell whether each had a lease's time for that."""
        now, date = self._clock(), self._date()
        if max(now - self._last[0], date - self._last[1]) > self._longest:
            self._since = now
        self._last = now, date
        return now - self._since >= self._lease_seconds


class Reaper:
    """Ends the leases of workers that fell silent.

    Nobody is heard while the aggregator is down or stopped, or its database is: who works all the
    while then has the time of a lease to be heard again. A date that jumps ends no lease either.

    Args:
        jobs: The jobs.
        changes: What to do about what that changes.
        metrics: What is counted.
        pause: Seconds between two looks.
    """

    def __init__(
        self, jobs: JobStore, changes: Changes, metrics: AggregatorMetrics, *, pause: float
    ) -> None:
        self._jobs = jobs
        self._changes = changes
        self._metrics = metrics
        self._hearing = Hearing(jobs.lease_seconds, pause)

    async def reap(self) -> None:
        """End all leases whose time is over, where their workers could have been heard.

        What is kept in memory for jobs of experiments that have ended is let go of, too.
        """
        await asyncio.to_thread(self._jobs.forget_ended)
        expired = await asyncio.to_thread(self._jobs.expired)
        if not self._hearing.look():
            return
        for job_id in expired:
            try:
                await self._end(job_id)
            except UnavailableError:
                raise
            except Exception:  # of one experiment, which must not keep all others' leases
                logger.exception("a lease cannot be ended", extra={"job": job_id})

    async def _end(self, job_id: str) -> None:
        change = await asyncio.to_thread(self._jobs.reap, job_id)
        if change is not None and change.job is not None:
            with naming(**job_names(change.job)):
                logger.warning("lease expired", extra={"worker": change.job.worker})
                self._metrics.expired(change)
                self._changes.follow_up(change)


def job_names(job: AnyJob) -> Mapping[str, str | int]:
    """Return what a job is called in the log."""
    return {
        "experiment": job.experiment_id,
        "job": job.id,
        "candidate": job.candidate,
        "split": str(job.split),
    }
