"""A training in a process of its own, which ends with its parent.

The child has its own random state, its own GPU memory and its own copy of the libraries, whose
settings are global. It writes one JSON object a line to standard output: progress, then the
outcome or an error. It ends when its standard input ends.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from modnorm import errors
from modnorm.training.job import (
    OnProgress,
    TrainedStudent,
    TrainingJob,
    TrainingProgress,
    ignore_progress,
    require_packages,
)

MODULE = "modnorm.training"
COMMAND: Sequence[str] = (sys.executable, "-m", MODULE)
"""Command line of the child, without its argument."""
STOP_SECONDS = 10.0
"""Seconds that an abandoned child has before it is killed."""


def train_in_child(
    job: TrainingJob, *, on_progress: OnProgress = ignore_progress
) -> TrainedStudent:
    """Train the student of a job as `modnorm.training.fine_tuning.train` does."""
    require_packages()
    with TemporaryDirectory(prefix="modnorm-train-") as folder:
        file = Path(folder, "job.json")
        file.write_text(job.model_dump_json(), encoding="utf-8")
        with subprocess.Popen(
            [*COMMAND, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            try:
                for line in child.stdout or ():
                    outcome = _handle(json.loads(line), on_progress)
                    if outcome is not None:
                        return outcome
                raise errors.EngineError(f"the training process ended with code {child.wait()}")
            finally:
                _stop(child)


def _handle(
    message: Mapping[str, Mapping[str, object]], on_progress: OnProgress
) -> TrainedStudent | None:
    if "progress" in message:
        on_progress(TrainingProgress.model_validate(message["progress"]))
        return None
    if "outcome" in message:
        return TrainedStudent.model_validate(message["outcome"])
    fault = message["error"]
    kind = getattr(errors, str(fault["kind"]), errors.EngineError)
    field, remedy = fault["field"], fault["remedy"]
    raise kind(
        str(fault["message"]),
        field=None if field is None else str(field),
        remedy=None if remedy is None else str(remedy),
    )


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a child that still runs."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
