"""The trainer without a server: takes job ids from its queue and trains."""

from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.services.common.queue import TRAIN_QUEUE, TRAIN_TASK
from modnorm.services.common.settings import TrainerSettings
from modnorm.services.common.worker.queue_worker import QueueWorker
from modnorm.services.trainer.metrics import TrainerMetrics
from modnorm.services.trainer.training_client import TrainingClient
from modnorm.services.trainer.training_runner import TrainingRunner
from modnorm.training import missing_packages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.v1.models_pb2_grpc import ModelServiceStub

JOIN_SECONDS = 25.0
"""Longest stop beyond the grace period: the end of the child, a call, a poll of the queue."""


def is_available() -> bool:
    """Return whether the extra `modnorm[train]` is installed."""
    return not missing_packages()


class Worker(QueueWorker):
    """A trainer. A stopping trainer releases its job, whose checkpoints stay."""

    def __init__(
        self, settings: TrainerSettings, *, registry: CollectorRegistry | None = None
    ) -> None:
        super().__init__(
            settings,
            queue=TRAIN_QUEUE,
            task=TRAIN_TASK,
            join_seconds=JOIN_SECONDS,
            kind="-trainer",
        )
        client = TrainingClient(
            JobServiceStub(self._channel),
            ModelServiceStub(self._channel),
            worker=self.name,
            shutdown=self._shutdown,
        )
        metrics = TrainerMetrics(registry or CollectorRegistry())
        self._runner = TrainingRunner(client, self._shutdown, settings, metrics)

    @property
    @override
    def _pause(self) -> float:
        return self._runner.pause

    @override
    def _handle(self, job_id: str) -> bool:
        self._runner.run(job_id)
        return True

    @override
    def _release(self) -> None:
        """Leave the job to the end of its lease."""
