"""Reaper: ends expired leases, and the waits of experiments that are worked on."""

import asyncio
import logging
import math
import time
from collections.abc import Callable

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.common.logging import naming

logger = logging.getLogger(__name__)


class Reachability:
    """Measures for how long workers could reach the aggregator without a gap; for one thread."""

    def __init__(self, lease_seconds: float, pause: float) -> None:
        self._lease_seconds = lease_seconds
        self._longest = pause + lease_seconds / 2
        self._since = time.monotonic()
        self._last = self._since, math.inf

    def check(self, lease_time: float) -> bool:
        """Record that workers can call now; return whether they could for a whole lease."""
        now = time.monotonic()
        if max(now - self._last[0], lease_time - self._last[1]) > self._longest:
            self._since = now
        self._last = now, lease_time
        return now - self._since >= self._lease_seconds


class Reaper:
    """Ends expired leases.

    No heartbeat arrives while the aggregator or its database is down. Afterwards each worker has
    the time of a lease for its next heartbeat. A jump of the clock of leases ends no lease either.
    """

    def __init__(
        self,
        jobs: JobStore,
        follow_up: Callable[[Change], None],
        metrics: AggregatorMetrics,
        *,
        pause: float,
    ) -> None:
        self._jobs = jobs
        self._follow_up = follow_up
        self._metrics = metrics
        self._reachability = Reachability(jobs.lease_seconds, pause)

    async def reap(self) -> None:
        """End leases that expired while workers could call."""
        for change in await asyncio.to_thread(self._jobs.end_waits):
            self._follow_up(change)
        expired = await asyncio.to_thread(self._jobs.expired)
        if not self._reachability.check(await asyncio.to_thread(self._jobs.lease_time)):
            return
        for job_id in expired:
            try:
                reaped = await asyncio.to_thread(self._jobs.reap, job_id)
            except UnavailableError:
                raise
            except Exception:  # one experiment must not block the others
                logger.exception("a lease cannot be ended", extra={"job": job_id})
                continue
            if reaped is not None and reaped.job is not None:
                with naming(**reaped.job.log_fields):
                    logger.warning("lease expired", extra={"worker": reaped.job.worker})
                    self._metrics.expired(reaped)
                    self._follow_up(reaped)
