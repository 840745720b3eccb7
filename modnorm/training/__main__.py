"""The child of `modnorm.training.child_process`: `python -m modnorm.training JOB.json`."""

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from modnorm.errors import ModnormError
from modnorm.locks import locked
from modnorm.training.job import LOCK, TrainingJob


def main() -> None:
    """Train the job of a file and write progress and outcome as JSON lines."""
    # Libraries may print; only this module writes to the pipe.
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    job = TrainingJob.model_validate_json(Path(sys.argv[1]).read_bytes())
    try:
        from transformers.utils import logging  # noqa: PLC0415 - after the redirection

        from modnorm.training.fine_tuning import train  # noqa: PLC0415 - after the redirection

        logging.disable_progress_bar()
        job.directory.mkdir(parents=True, exist_ok=True)
        # The child of a killed trainer may not have ended yet.
        with locked(job.directory / LOCK):
            outcome = train(job, lambda step, steps: _send(pipe, {"progress": [step, steps]}))
    except Exception as error:
        if not isinstance(error, ModnormError):
            _send(pipe, {"error": ["EngineError", f"{type(error).__name__}: {error}", None, None]})
            raise
        fault = [type(error).__name__, error.message, error.field, error.remedy]
        _send(pipe, {"error": fault})
        sys.exit(1)
    _send(pipe, {"outcome": outcome.model_dump(mode="json")})


def _send(pipe: TextIO, message: Mapping[str, object]) -> None:
    pipe.write(json.dumps(message) + "\n")
    pipe.flush()


def _end_with_parent() -> None:
    """End at the end of standard input: the parent is gone, or wants no outcome."""
    # Python aborts at exit if this thread holds the lock of `sys.stdin`.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
