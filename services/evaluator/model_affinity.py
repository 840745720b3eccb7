"""Keeps a worker on the model that it has loaded, for a limited time."""

import logging
import time
import zlib
from collections.abc import Iterator

from modnorm.errors import ModnormError
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.model_cache import ModelCache
from modnorm.v1 import evaluation_pb2 as messages

TRIES = 3
"""Pending jobs that the worker tries to lease; other workers may lease them first."""

logger = logging.getLogger(__name__)


class ModelAffinity:
    """Replaces jobs of other models by jobs of the loaded model."""

    def __init__(self, client: AggregatorClient, models: ModelCache, patience: float) -> None:
        self._client = client
        self._models = models
        self._patience = patience
        self._first = float("-inf")
        """Time of the first job of another model in the present period of patience."""
        self._last = float("-inf")

    def replacement(self, job: messages.Job) -> messages.Job | None:
        """Return a leased job of the loaded model to do instead; None to keep `job`.

        None if no job of the loaded model is pending or the patience has run out. The next model
        begins with full patience.
        """
        loaded = self._models.key
        if loaded is None or self._models.holds(job) or self._is_out_of_patience():
            return None
        other = next(self._claimed(loaded.model_digest), None)
        if other is None:
            self._reset()
        return other

    def _is_out_of_patience(self) -> bool:
        now = time.monotonic()
        if now - self._last > self._patience:
            self._first = now
        self._last = now
        if now - self._first < self._patience:
            return False
        self._reset()
        return True

    def _reset(self) -> None:
        self._first = self._last = float("-inf")

    def _claimed(self, model_digest: str) -> Iterator[messages.Job]:
        """Lease pending jobs of a model, one by one; release those that need another engine."""
        try:
            pending = self._client.find_jobs(model_digest)
            # The offset differs by worker, so that workers try different jobs.
            start = zlib.crc32(self._client.worker.encode()) % max(1, len(pending))
            for job_id in (*pending[start:], *pending[:start])[:TRIES]:
                job = self._client.claim(job_id)
                if job is not None and self._models.holds(job):
                    yield job
                elif job is not None:
                    reason = "the job's engine settings differ from the loaded engine's"
                    self._client.fail(job.lease, messages.FAILURE_KIND_RELEASED, reason)
        except ModnormError as error:
            logger.warning("jobs of the loaded model not listed: %s", error)
