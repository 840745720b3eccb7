"""Leads experiments from their creation to the selection, one task an experiment."""

import asyncio
import logging
import math
import random
import time
import uuid

from modnorm.client.watch import WAITING
from modnorm.errors import CancelledError, EngineError, ModnormError, UnavailableError
from services.aggregator.journey import Journey
from services.aggregator.stores.experiments import ExperimentStore
from services.common.logging import internal_error

FIRST_PAUSE = 0.5
"""Seconds before a step is tried again for the first time."""
BREAKDOWN_RETRIES = 3
"""How often a step is tried again whose service broke down."""

logger = logging.getLogger(__name__)


class Conductor:
    """Finds the experiments that have to move on, and moves them.

    Args:
        experiments: The experiments.
        journey: The steps.
        retry_seconds: Longest pause before a step is tried again whose service is down.
        outage_seconds: How long a step is tried whose service stays down.
    """

    def __init__(
        self,
        experiments: ExperimentStore,
        journey: Journey,
        *,
        retry_seconds: float,
        outage_seconds: float = math.inf,
    ) -> None:
        self._experiments = experiments
        self._journey = journey
        self._retry_seconds = retry_seconds
        self._outage_seconds = outage_seconds
        self._driven: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Start to drive every experiment that has to move on and is not driven yet."""
        for experiment_id in await asyncio.to_thread(self._experiments.conducted):
            self.drive(experiment_id)

    def drive(self, experiment_id: str) -> None:
        """Drive one experiment in the background, unless it is being driven."""
        if experiment_id not in self._driven:
            task = asyncio.create_task(self._drive(experiment_id))
            self._driven[experiment_id] = task
            task.add_done_callback(lambda _: self._driven.pop(experiment_id, None))

    def drop(self, experiment_id: str) -> None:
        """Stop driving an experiment that has ended, in the middle of a call if need be."""
        task = self._driven.get(experiment_id)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Stop driving; what was begun is taken up again by the next aggregator."""
        tasks = list(self._driven.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, experiment_id: str) -> None:
        """Lead an experiment; whatever goes wrong here too is taken up by the next look."""
        names = {"experiment": experiment_id}
        try:
            await self._lead(experiment_id)
        except UnavailableError as error:
            logger.warning("put off: %s", error, extra=names)
        except Exception:
            logger.exception("cannot say that the experiment failed", extra=names)

    async def _lead(self, experiment_id: str) -> None:
        """Take steps until none is left; an unexpected error ends the experiment.

        Raises:
            UnavailableError: the database is down.
        """
        names = {"experiment": experiment_id}
        try:
            while await self._take_step(experiment_id):
                logger.info("step taken", extra=names)
        except UnavailableError:
            raise
        except Exception:
            error_id = uuid.uuid4().hex
            logger.exception("unexpected error", extra={**names, "error_id": error_id})
            await self._journey.fail(experiment_id, internal_error(error_id))

    async def _take_step(self, experiment_id: str) -> bool:
        """Take one step, as long as can be while a service is down, a few times if it broke down.

        A service that stops cancels its calls: that is an outage too.
        """
        told, attempt, breakdowns, give_up = "", 0, 0, math.inf
        while True:
            try:
                return await self._journey.step(experiment_id)
            except ModnormError as error:
                breakdowns += _is_breakdown(error)
                give_up = min(give_up, time.monotonic() + self._outage_seconds)
                spent = breakdowns > BREAKDOWN_RETRIES or time.monotonic() >= give_up
                if spent or not _may_pass(error):
                    await self._journey.fail(experiment_id, str(error))
                    return False
                if error.message != told:
                    told = error.message
                    await self._journey.note(experiment_id, f"{WAITING}{error.message}")
            await asyncio.sleep(self._pause(attempt))
            attempt += 1

    def _pause(self, attempt: int) -> float:
        """Return a growing pause in seconds, spread so that aggregators do not act in step."""
        longest = min(FIRST_PAUSE * 2.0 ** min(attempt, 20), self._retry_seconds)
        return longest * random.uniform(0.5, 1.0)


def _may_pass(error: ModnormError) -> bool:
    """Tell whether the same step may succeed later."""
    return isinstance(error, UnavailableError | CancelledError) or _is_breakdown(error)


def _is_breakdown(error: ModnormError) -> bool:
    """Tell whether an engine broke, or a service met what it has no name for: an I/O error."""
    return type(error) is ModnormError or isinstance(error, EngineError)
