"""A callback of transformers' trainer that reports a training and stops it."""

import time
from math import isfinite
from pathlib import Path

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from modnorm.errors import CancelledError, CandidateError
from modnorm.files import write_file
from modnorm.training.job import TrainingProgress
from modnorm.training.observers import IsCancelled, OnProgress

COMPLETE = "complete"
"""Marks a whole checkpoint, and holds the seconds of the training until then.

A killed process leaves a checkpoint without it.
"""


class JobCallback(TrainerCallback):
    """Reports every step, stops a cancelled or diverged training, marks whole checkpoints.

    Args:
        on_progress: Called after every step.
        is_cancelled: Asked after every micro-batch.
    """

    seconds_before = 0.0
    """Seconds of the training before the checkpoint that goes on."""

    def __init__(self, on_progress: OnProgress, is_cancelled: IsCancelled) -> None:
        self._started = time.monotonic()
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled

    @property
    def seconds(self) -> float:
        """Wall time of the training."""
        return self.seconds_before + time.monotonic() - self._started

    def on_substep_end(
        self, *_: TrainingArguments | TrainerState | TrainerControl, **__: object
    ) -> None:
        """Stop a cancelled training after a micro-batch."""
        self._check_cancelled()

    def on_step_end(
        self, *_: TrainingArguments | TrainerState | TrainerControl, **__: object
    ) -> None:
        """Stop a cancelled training after a step."""
        self._check_cancelled()

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the interface's
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the interface's
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        """Report a step."""
        if logs is None or "loss" not in logs:
            return
        if not isfinite(logs["loss"]):
            raise CandidateError(
                f"the training diverged: its loss is {logs['loss']} in step {state.global_step}",
                field="training.learning_rate",
                remedy="lower it",
            )
        self._on_progress(
            TrainingProgress(
                step=state.global_step,
                steps=state.max_steps,
                epoch=float(state.epoch or 0.0),
                loss=logs["loss"],
                learning_rate=logs["learning_rate"],
                tokens=int(state.num_input_tokens_seen),
            )
        )

    def on_save(
        self, args: TrainingArguments, state: TrainerState, *_: TrainerControl, **__: object
    ) -> None:
        """Mark the checkpoint as whole."""
        folder = Path(str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        write_file(folder / COMPLETE, f"{self.seconds:.3f}".encode())

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise CancelledError("the training was cancelled")


def whole_checkpoints(state: Path) -> list[Path]:
    """Return the whole checkpoints of a training, oldest first."""
    marks = state.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{COMPLETE}")
    return sorted((mark.parent for mark in marks), key=lambda path: int(path.name.split("-")[1]))
