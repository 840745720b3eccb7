"""The directories of unfinished trainings, by content: a training goes on under any job id."""

import hashlib
import shutil
import time
from contextlib import suppress
from pathlib import Path

from modnorm.files import encode_json
from modnorm.v1 import evaluation_pb2 as messages

KEPT_SECONDS = 14 * 86_400.0
"""Age of an untouched training that is removed: its distillation was cancelled, for example."""


class TrainingDirectories:
    """A folder with a directory for each unfinished training."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, job: messages.TrainJob) -> Path:
        """Return the directory of a job, created if absent."""
        directory = self._root / _key(job)
        directory.mkdir(parents=True, exist_ok=True)
        directory.touch()
        return directory

    def remove(self, job: messages.TrainJob) -> None:
        """Remove the directory of a job that is reported, or that nobody needs."""
        shutil.rmtree(self._root / _key(job), ignore_errors=True)

    def remove_old(self) -> None:
        """Remove directories that no training used for a long time.

        Another trainer may remove one at the same time.
        """
        limit = time.time() - KEPT_SECONDS
        for directory in self._root.glob("*"):
            with suppress(FileNotFoundError):
                if directory.stat().st_mtime < limit:
                    shutil.rmtree(directory, ignore_errors=True)


def _key(job: messages.TrainJob) -> str:
    """Return a digest of everything that decides the student."""
    settings = job.settings.SerializeToString(deterministic=True).hex()
    content = {
        "model_digest": job.model_digest,
        "dataset_digest": job.dataset_digest,
        "settings": settings,
        "seed": job.seed,
    }
    return hashlib.sha256(encode_json(content)).hexdigest()
