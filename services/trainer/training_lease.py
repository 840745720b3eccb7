"""The lease of a training, whose heartbeats carry the last step."""

import time

from typing_extensions import override

from modnorm.errors import EngineError
from modnorm.services.common.worker.lease import Heartbeats, HeldLease, ReleasedError
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.training import TrainingProgress
from modnorm.v1 import evaluation_pb2 as messages

_MARGIN = 60.0
"""Seconds beyond the longest silence, in which the trainer can fail a job that hangs."""


class TrainingLease(HeldLease):
    """Context in which heartbeats extend a training's lease; their responses may end it.

    A stopping trainer releases the training at once: its checkpoints stay.

    Args:
        heartbeats: Sends the heartbeats.
        lease: The lease.
        shutdown: The request to stop.
        stall_seconds: Seconds without a step after which the training hangs.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        lease: messages.Lease,
        shutdown: Shutdown,
        *,
        stall_seconds: float,
    ) -> None:
        super().__init__(heartbeats, lease, shutdown, silence_seconds=stall_seconds + _MARGIN)
        self._stall_seconds = stall_seconds
        self._step: TrainingProgress | None = None

    def progress(self, step: TrainingProgress) -> None:
        """Record a step; raise if the training has to stop."""
        self._step = step
        self.check()

    def is_cancelled(self) -> bool:
        """Return False, or raise the reason to stop.

        Raises:
            EngineError: the training hangs.
            ReleasedError: the trainer is stopping.
            ModnormError: as `HeldLease.require_wanted` raises.
        """
        self.require_wanted()
        if self._shutdown.requested.is_set():
            raise ReleasedError
        if time.monotonic() - self._last_progress > self._stall_seconds:
            raise EngineError(f"the training made no step in {self._stall_seconds:g} s")
        return False

    @override
    def _request(self) -> messages.HeartbeatRequest:
        step = self._step
        if step is None:
            return super()._request()
        training = messages.TrainProgress(
            step=step.step,
            steps=step.steps,
            loss=step.loss,
            learning_rate=step.learning_rate,
            tokens=step.tokens,
        )
        return messages.HeartbeatRequest(lease=self.lease, training=training)
