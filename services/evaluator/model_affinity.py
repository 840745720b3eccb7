"""Which model a worker works on: the one that is loaded, as long as that lets nobody starve."""

import logging
import time
import zlib
from collections.abc import Iterator

from modnorm.errors import ModnormError
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.model_cache import Models

TRIES = 3
"""Jobs that are asked for: others may be faster."""

logger = logging.getLogger(__name__)


class Preference:
    """Finds jobs of the model that is loaded, instead of a job of another.

    Args:
        gateway: The aggregator.
        models: Knows what is loaded.
        patience: Seconds for which jobs of other models are passed on, since the first of them.
    """

    def __init__(self, gateway: AggregatorClient, models: Models, patience: float) -> None:
        self._gateway = gateway
        self._models = models
        self._patience = patience
        self._first = float("-inf")
        self._last = float("-inf")

    def instead_of(self, job: messages.Job) -> messages.Job | None:
        """Return a leased job of the model that is loaded; None when it is the given one's turn.

        It is when no job of the loaded model is pending, or when others have been passed on for
        long enough; they then have not been for the next model.
        """
        held = self._models.key
        if held is None or self._models.holds(job) or self._is_out_of_patience():
            return None
        other = next(self._claimed(held.model_digest), None)
        if other is None:
            self._start_again()
        return other

    def _is_out_of_patience(self) -> bool:
        now = time.monotonic()
        if now - self._last > self._patience:
            self._first = now
        self._last = now
        if now - self._first < self._patience:
            return False
        self._start_again()
        return True

    def _start_again(self) -> None:
        """Have patience with the next model."""
        self._first = self._last = float("-inf")

    def _claimed(self, model_digest: str) -> Iterator[messages.Job]:
        """Lease pending jobs of a model, one by one, and hand back what needs another engine."""
        try:
            found = self._gateway.find_jobs(model_digest)
            # Workers do not all begin with the same one.
            start = zlib.crc32(self._gateway.worker.encode()) % max(1, len(found))
            for job_id in (*found[start:], *found[:start])[:TRIES]:
                job = self._gateway.claim(job_id)
                if job is not None and self._models.holds(job):
                    yield job
                elif job is not None:
                    reason = "its engine has other settings than the one that is loaded"
                    self._gateway.fail(job.lease, messages.FAILURE_KIND_RELEASED, reason)
        except ModnormError as error:
            logger.warning("no other job was looked for: %s", error)
