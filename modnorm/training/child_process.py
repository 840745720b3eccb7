"""A training in a process of its own, which ends with its parent.

The child has its own random state, its own GPU memory and its own copy of the libraries, whose
settings are global. It writes one JSON object a line to standard output: progress, then the
outcome or an error. It ends when its standard input ends.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from modnorm import errors
from modnorm.prediction.ranked_votes import OnProgress, ignore_progress
from modnorm.training.job import TrainedStudent, TrainingJob, require_packages

MODULE = "modnorm.training"
COMMAND: Sequence[str] = (sys.executable, "-m", MODULE)
"""Command line of the child, without its argument."""
_STOP_SECONDS = 10.0
"""Seconds that an abandoned child has before it is killed."""


def train_in_child(job: TrainingJob, on_progress: OnProgress = ignore_progress) -> TrainedStudent:
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
                    message = json.loads(line)
                    if "outcome" in message:
                        return TrainedStudent.model_validate(message["outcome"])
                    if "error" in message:
                        kind, text, field, remedy = message["error"]
                        raise getattr(errors, kind)(text, field=field, remedy=remedy)
                    on_progress(*message["progress"])
                raise errors.EngineError(f"the training process ended with code {child.wait()}")
            finally:
                if child.stdin is not None:
                    child.stdin.close()
                try:
                    child.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()
