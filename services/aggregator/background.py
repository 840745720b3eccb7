"""Work that goes on without a caller."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TypeVar

from modnorm.errors import ModnormError, UnavailableError
from services.aggregator.dispatcher import Dispatcher
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.notifier import Notifier
from services.aggregator.rows import AnyJob
from services.aggregator.stores.jobs import Change, JobStore
from services.common.logging import naming

ResultT = TypeVar("ResultT")

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


class LeftWork:
    """Work that goes on though who asked for it has gone; used in one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def keep(self, work: Coroutine[object, object, ResultT]) -> asyncio.Task[ResultT]:
        """Go on with work; return what waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def settle(self) -> None:
        """Wait for all of it."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ModnormError):
            logger.error("left work failed", exc_info=error)


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


class Reaper:
    """Ends the leases of workers that fell silent.

    Args:
        jobs: The jobs.
        changes: What to do about what that changes.
        metrics: What is counted.
    """

    def __init__(self, jobs: JobStore, changes: Changes, metrics: AggregatorMetrics) -> None:
        self._jobs = jobs
        self._changes = changes
        self._metrics = metrics

    async def reap(self) -> None:
        """End all leases whose time is over."""
        for job_id in await asyncio.to_thread(self._jobs.expired):
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
